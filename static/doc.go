// Package static serves files: those of a directory, or of any fs.FS.
//
//	files, err := static.Dir("/srv/www")
//	…
//	r.GET("/assets/{path...}", files.Serve) // below a prefix of a router, which is left out of names
//	r.Mount("/assets", files.Serve)         // the same
//	err = filo.ListenAndServe(":8080", files.Serve) // or all that a server does
//
// A FileServer of net/http answers a GET alike: index.html for directories, redirects from /dir to /dir/, from
// /dir/index.html to /dir/ and from /file/ to /file, ranges, and conditions. The rest of what it does is told below.
//
// # Names
//
// The file is the one that the decoded path names. Nothing leads out of the tree: Dir opens files by os.Root, which doesn't
// follow symbolic links out of it, and an fs.FS gets paths only that fs.ValidPath allows. Each file has one path: one with
// empty segments, "." or "..", with an encoded slash, a backslash or NUL is 404, and is never cleaned. (A router redirects most
// of them before. Were %2F a slash here, "/private%2Fkey" would pass by what guards "/private/" in a router.) On Windows so are
// short names, such as GIT~1 for .git, and those with dots or spaces at the end.
//
// Names that begin with a dot are 404, as all below them, but for /.well-known/ (RFC 8615). So is everything that is no
// regular file: a device, a FIFO, a socket. Opening one never waits. Methods other than GET and HEAD are 405.
//
// Errors are those of the server's ErrorHandler: 404 for what isn't there, 403 for what may not be read, 500 for others. The
// cause, which has paths in it, is theirs to log, and isn't shown.
//
// # Entity tags
//
// Tags are strong, so that ranges of one answer fit those of another one. That of a file in memory is a hash of its
// content, the same on each server. A larger file's is a hash of what the system knows of it: device, inode, size, and the
// times of its last modification and change, to the nanosecond. A program can't set the latter, so it differs for each
// content, but for two changes that are so close that the system's clock didn't tick in between. So the tag is a weak one
// until the last change is two seconds old; and so it is for good on systems other than Linux. Without a time of
// modification a large file has none at all. Files that nothing changes while the server runs may all have a hash: see
// Options.Frozen.
//
// Replace files by renaming new ones over them. A file that is written in place while it is sent may reach its client half
// old and half new. One that became shorter breaks the connection off; the answer is never padded.
//
// # Ranges
//
// Any number of ranges up to 32 that are together not larger than the file are sent, several of them as multipart/byteranges.
// More are ignored, as RFC 9110, section 14.2, allows: the file is sent as a whole. So is what isn't a GET, has another unit
// than bytes, or an If-Range that doesn't fit. Malformed ranges, and those of which none is in the file, are 416.
//
// # Encodings
//
// With Options.Precompressed the files name.zst, name.br and name.gz are name's other representations, if they are not older than
// it: gzip, zstd and brotli keep the time. Accept-Encoding chooses among them. Each has its own entity tag, and ranges are of
// the encoded bytes (RFC 9110, section 14). A client that refuses all, the plain one too, gets 406.
//
// # Memory
//
// Small files that are asked for are kept in memory, within a limit, and sent from there without a copy, an allocation, or a
// worker of their own: see Options.CacheBytes. A file on the disk is looked at once a second at most (Options.CacheCheck), and
// only when it is asked for. Whatever needs the disk runs as a filo.Offload handler does, and never holds up a loop. Large
// files, and ranges of them, go out by sendfile on plain sockets. On Linux those that are asked for often stay open in
// between (Options.OpenFiles). The system is asked at each request what such a file is now: that it was written to, replaced or
// deleted shows at once, and that a directory in its path was replaced when the file is looked at by its name the next time.
package static
