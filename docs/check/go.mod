module github.com/filohttp/filo/docs/check

go 1.26.0

toolchain go1.26.11

require (
	github.com/danielgtaylor/huma/v2 v2.37.2
	github.com/filohttp/filo v0.1.0
	github.com/filohttp/filo/contrib/brotli v0.1.0
	github.com/filohttp/filo/contrib/grpc v0.1.0
	github.com/filohttp/filo/contrib/http3 v0.1.0
	github.com/filohttp/filo/contrib/huma v0.1.0
	github.com/filohttp/filo/contrib/jwt v0.1.0
	github.com/filohttp/filo/contrib/otel v0.1.0
	github.com/filohttp/filo/contrib/prometheus v0.1.0
	github.com/filohttp/filo/contrib/redis v0.1.0
	github.com/filohttp/filo/contrib/restart v0.1.0
	github.com/filohttp/filo/contrib/validate v0.1.0
	github.com/filohttp/filo/contrib/websocket v0.1.0
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/prometheus/client_golang v1.25.0
	github.com/redis/go-redis/v9 v9.23.0
	go.opentelemetry.io/otel v1.47.0
)

require (
	github.com/andybalholm/brotli v1.3.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coreos/go-systemd/v22 v22.7.0 // indirect
	github.com/gabriel-vasile/mimetype v1.4.16 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-playground/locales v0.14.2 // indirect
	github.com/go-playground/universal-translator v0.18.2 // indirect
	github.com/go-playground/validator/v10 v10.30.6 // indirect
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/gobwas/ws v1.5.0 // indirect
	github.com/google/pprof v0.0.0-20250317173921-a4b03ec1a45e // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/leodido/go-urn v1.5.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pandatix/go-abnf v0.5.5 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.74.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	github.com/quic-go/quic-go v0.65.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/filohttp/filo => ../..
	github.com/filohttp/filo/contrib/brotli => ../../contrib/brotli
	github.com/filohttp/filo/contrib/grpc => ../../contrib/grpc
	github.com/filohttp/filo/contrib/http3 => ../../contrib/http3
	github.com/filohttp/filo/contrib/huma => ../../contrib/huma
	github.com/filohttp/filo/contrib/jwt => ../../contrib/jwt
	github.com/filohttp/filo/contrib/otel => ../../contrib/otel
	github.com/filohttp/filo/contrib/prometheus => ../../contrib/prometheus
	github.com/filohttp/filo/contrib/redis => ../../contrib/redis
	github.com/filohttp/filo/contrib/restart => ../../contrib/restart
	github.com/filohttp/filo/contrib/validate => ../../contrib/validate
	github.com/filohttp/filo/contrib/websocket => ../../contrib/websocket
)
