// Package brotli adds the content coding br to middleware.Compress, by github.com/andybalholm/brotli. All browsers accept it over TLS. Its
// answers are about a quarter shorter than those of gzip.
//
//	go get github.com/filohttp/filo/contrib/brotli@latest
//
// The package is a separate module, so that filo doesn't depend on andybalholm/brotli.
//
//	s.Use(middleware.Compress(middleware.CompressOptions{Codings: []middleware.Coding{brotli.Coding()}}))
//
// # When
//
// zstd, which Compress has by itself, takes about as much time and makes answers about as short. Chrome and Firefox accept it, and so does
// Safari since version 26. Add brotli if many clients accept br and not zstd, such as older browsers and content delivery networks.
//
// Static files are better compressed once, at the highest level, before they are served: see package static.
//
// # Levels
//
// An answer that Compress has as a whole takes less time than a stream at the same level, since only an encoder that needn't flush can be so
// fast. For JSON of 18 KB, on one processor, beside gzip at Compress' level:
//
//	coding          time   bytes
//	gzip, level 5   ×1.00  2,416
//	br, level 1     ×0.70  1,760
//	br, level 3     ×1.43  1,782
//	br, a stream    ×2.95  1,812
//
// An encoder keeps up to 1 MB for whole answers, and as much for streams once it has had one.
package brotli
