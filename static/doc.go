// Package static serves the files of a directory or of any fs.FS.
//
//	files, err := static.Dir("/srv/www")
//	…
//	r.GET("/assets/{path...}", files.Serve) // below a prefix of a router, which is left out of names
//	r.Mount("/assets", files.Serve)         // the same
//	err = filo.ListenAndServe(":8080", files.Serve) // or all that a server does
//
// It answers a GET like net/http's FileServer: index.html for directories, redirects from /dir to /dir/, from /dir/index.html to
// /dir/ and from /file/ to /file, ranges, and conditions. The differences and additions follow.
//
// # Names
//
// The decoded path names the file. No path leads out of the tree: Dir opens files with os.Root, which doesn't follow symbolic
// links out of it, and an fs.FS gets only paths that fs.ValidPath allows. Each file has exactly one path: a path with empty
// segments, "." or "..", an encoded slash, a backslash or NUL is 404, and is never cleaned. (A router redirects most of these
// paths before they reach the handler. If %2F were a slash here, "/private%2Fkey" would bypass a router's protection of
// "/private/".) On Windows short names, such as GIT~1 for .git, and names with dots or spaces at the end are 404 too.
//
// Names that begin with a dot, and everything below them, are 404, except /.well-known/ (RFC 8615). Only the requested name counts: a
// visible link is served whatever the name of its target. In a ConfigMap mounted by Kubernetes, for example, all files are links to names
// that begin with two dots.
//
// Everything that isn't a regular file is 404 as well: a device, a FIFO, a socket. Opening one never blocks. Methods other than GET
// and HEAD get 405.
//
// Errors go to the server's ErrorHandler: 404 for a file that doesn't exist, 403 for a file that the process has no permission to
// read, 500 for other failures. The ErrorHandler may log the cause, which contains paths; clients don't see it.
//
// # Entity tags
//
// Entity tags are strong, so that ranges from different answers fit together. The tag of a file in memory is a hash of its content, the
// same on each server. The tag of a larger file is a hash of its metadata: device, inode, size, and the times of its last modification and
// change, to the nanosecond. Programs can't set the time of change, so it differs for each content, unless two changes happen within one
// tick of the system's clock. The tag is therefore weak until two seconds after the last change. On systems other than Linux it stays weak.
// A large file without a modification time has no tag. If no file changes while the server runs, every tag can be a hash of the content:
// see Options.Frozen.
//
// Replace files by renaming new ones over them. If a file is written in place while it is sent, its client may get half old and
// half new content. If the file becomes shorter while it is sent, the connection is aborted; the response is never padded.
//
// # Ranges
//
// Up to 32 ranges are sent if they are together not larger than the file, several of them as multipart/byteranges. If there are more
// ranges, or if they are larger, the Range field is ignored, as RFC 9110, section 14.2, allows, and the whole file is sent. The same
// holds if the method isn't GET, the unit isn't bytes, or If-Range doesn't match. Malformed ranges, and ranges that all lie outside the
// file, get 416.
//
// # Encodings
//
// With Options.Precompressed the files name.zst, name.br and name.gz are representations of name, unless they are older than
// name: gzip, zstd and brotli preserve the modification time. Accept-Encoding chooses among them. Each has its own entity tag,
// and ranges refer to the encoded bytes (RFC 9110, section 14). A client that refuses all of them, including the plain file, gets
// 406.
//
// # Memory
//
// Small files that are requested are kept in memory, within a limit, and sent from there without a copy, an allocation, or an extra
// worker: see Options.CacheBytes. A file is checked on disk at most once a second (Options.CacheCheck), and only when it is requested.
// Looking up and opening a file is treated like a filo.Offload handler, so it never blocks an event loop. Large files, and ranges of
// them, are sent with sendfile on sockets without TLS. On Linux, files that are often requested stay open between requests
// (Options.OpenFiles). Each request asks the system for the state of an open file, so it notices at once that the file was written,
// replaced or deleted. The replacement of a directory in the file's path is noticed at the next check by name.
//
// An event loop itself sends the first megabyte of an open file, and needs another worker only for bytes that the connection doesn't
// accept at once. If reading from the disk takes long, another worker takes over the loop, and for a while such requests are treated like
// filo.Offload handlers. Ranges, and large files over TLS or HTTP/2, are always sent by a worker.
package static
