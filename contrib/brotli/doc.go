// Package brotli adds the content coding br to middleware.Compress, using github.com/andybalholm/brotli. All browsers accept br over TLS.
// Answers in br are about a quarter shorter than in gzip.
//
//	go get github.com/filohttp/filo/contrib/brotli@latest
//
// The package is a separate module, so that filo doesn't depend on andybalholm/brotli.
//
//	r.Use(middleware.Compress(middleware.CompressOptions{
//		Codings:   []middleware.Coding{brotli.Coding()},
//		Encodings: []string{"zstd", "br", "gzip", "deflate"}, // without this line br comes first
//	}))
//
// # When
//
// zstd, which Compress has built in, takes less time and makes answers about as short. Chrome and Firefox accept zstd, and so does Safari
// since version 26. Add brotli if many clients accept br and not zstd, such as older browsers and content delivery networks.
//
// Static files are better compressed once, at the highest level, before they are served: see package static.
//
// # Levels
//
// An answer that doesn't stream takes less time than a stream at the same level: it is encoded by a faster encoder, which can't flush. For
// JSON of 18 KB, on one processor, compared with gzip at Compress' default level:
//
//	coding             time   bytes
//	gzip, level 5      ×1.00  2,332
//	br, level 1        ×0.87  1,719
//	br, level 4        ×3.45  1,683
//	a stream, level 1  ×1.91  1,755
//
// An encoder keeps up to 1 MB for whole answers, and up to another 1 MB for streams once it has encoded a stream.
package brotli
