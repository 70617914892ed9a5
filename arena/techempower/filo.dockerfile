FROM golang:1.26 AS build
WORKDIR /src
COPY . .
# Outside of filo's repository the module is the released one.
RUN go mod edit -dropreplace github.com/filohttp/filo
RUN CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags=-s -o /server .

FROM gcr.io/distroless/static-debian12
COPY --from=build /server /server
EXPOSE 8080
ENTRYPOINT ["/server"]
