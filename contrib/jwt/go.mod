module github.com/filohttp/filo/contrib/jwt

go 1.25.0

require (
	github.com/filohttp/filo v0.1.0
	github.com/golang-jwt/jwt/v5 v5.3.1
)

require (
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace github.com/filohttp/filo => ../..
