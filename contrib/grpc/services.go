package grpcfilo

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// Options configures New. The zero value is valid.
type Options struct {
	// UnaryInterceptors surround the handlers of unary calls, StreamInterceptors those of all other calls. The first interceptor is outermost.
	UnaryInterceptors  []grpc.UnaryServerInterceptor
	StreamInterceptors []grpc.StreamServerInterceptor
	// StatsHandlers, such as otelgrpc.NewServerHandler(), observe each call. Their TagConn and HandleConn aren't called, since connections also
	// carry requests that aren't calls. filo.Server.Stats counts connections.
	StatsHandlers []stats.Handler
	// MaxRecvMsgSize and MaxSendMsgSize limit the size of a message in bytes. MaxRecvMsgSize applies before and after a message is
	// decompressed. A call with a larger message ends with RESOURCE_EXHAUSTED. Defaults as in grpc-go: 4 MB, and 2 GB less one byte.
	// MaxRecvMsgSize replaces filo.Server.MaxBodyBytes for calls. It is at most 4 GB less one byte, and 1 GB on 32-bit systems.
	MaxRecvMsgSize, MaxSendMsgSize int
	// DisableWeb refuses gRPC-Web.
	DisableWeb bool
}

const (
	defaultMaxRecvMsgSize = 4 << 20
	// greatestMaxRecvMsgSize is what a prefix can announce. It leaves room for sums with the size of a prefix, and for base64.
	greatestMaxRecvMsgSize = min(math.MaxUint32, math.MaxInt/2)
)

// Services is a set of gRPC services. It is a grpc.ServiceRegistrar, and a reflection.GRPCServer. Register all services, and then call Mount,
// before the server starts.
type Services struct {
	options  Options
	unary    grpc.UnaryServerInterceptor  // nil for none
	stream   grpc.StreamServerInterceptor // nil for none
	services map[string]*service
	names    []string // of services, in the order of their registration
}

// service is a registered service.
type service struct {
	implementation any
	metadata       any // ServiceDesc.Metadata
	methods        []*method
}

// method is a method of a service. It is immutable.
type method struct {
	services       *Services
	implementation any
	name           string // such as "/grpc.health.v1.Health/Check"
	grpc.StreamDesc
}

// New returns an empty set of services.
func New(options ...Options) *Services {
	var o Options
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		panic("grpcfilo: New takes one Options at most: set all of them in one")
	}
	if o.MaxRecvMsgSize < 0 || o.MaxSendMsgSize < 0 {
		panic("grpcfilo: Options.MaxRecvMsgSize and MaxSendMsgSize must not be negative")
	}
	if o.MaxRecvMsgSize == 0 {
		o.MaxRecvMsgSize = defaultMaxRecvMsgSize
	}
	o.MaxRecvMsgSize = min(o.MaxRecvMsgSize, greatestMaxRecvMsgSize)
	if o.MaxSendMsgSize == 0 {
		o.MaxSendMsgSize = math.MaxInt32
	}
	return &Services{
		options: o, services: make(map[string]*service),
		unary: chainUnary(slices.Clone(o.UnaryInterceptors)), stream: chainStream(slices.Clone(o.StreamInterceptors)),
	}
}

// RegisterService implements grpc.ServiceRegistrar: generated code calls it. It panics if the implementation lacks a method of the service,
// or if a service of this name was registered before.
func (s *Services) RegisterService(desc *grpc.ServiceDesc, implementation any) {
	if implementation != nil {
		if want := reflect.TypeOf(desc.HandlerType).Elem(); !reflect.TypeOf(implementation).Implements(want) {
			panic(fmt.Sprintf("grpcfilo: %T doesn't implement %v", implementation, want))
		}
	}
	if s.services[desc.ServiceName] != nil {
		panic("grpcfilo: the service " + desc.ServiceName + " is registered twice")
	}
	added := &service{implementation: implementation, metadata: desc.Metadata}
	for _, d := range desc.Methods {
		added.methods = append(added.methods, s.newMethod(desc, implementation, s.streamOf(d)))
	}
	for _, d := range desc.Streams {
		added.methods = append(added.methods, s.newMethod(desc, implementation, d))
	}
	s.services[desc.ServiceName] = added
	s.names = append(s.names, desc.ServiceName)
}

func (s *Services) newMethod(desc *grpc.ServiceDesc, implementation any, d grpc.StreamDesc) *method {
	return &method{services: s, implementation: implementation, name: "/" + desc.ServiceName + "/" + d.StreamName, StreamDesc: d}
}

// streamOf returns a unary method as a stream with one message in each direction.
func (s *Services) streamOf(d grpc.MethodDesc) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: d.MethodName, Handler: func(implementation any, stream grpc.ServerStream) error {
		reply, err := d.Handler(implementation, stream.Context(), stream.RecvMsg, s.unary)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	}}
}

// GetServiceInfo lists the services with their methods, for package reflection.
func (s *Services) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := make(map[string]grpc.ServiceInfo, len(s.services))
	for name, each := range s.services {
		info := grpc.ServiceInfo{Metadata: each.metadata}
		for _, m := range each.methods {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams})
		}
		all[name] = info
	}
	return all
}

// Routes is a router.Router or a router.Group.
type Routes interface {
	Handle(pattern string, h filo.Handler, middleware ...filo.Middleware) *router.Route
}

// Mount registers a route for each method, such as "POST /grpc.health.v1.Health/Check". Services that are registered later have no routes.
func (s *Services) Mount(r Routes) {
	for _, name := range s.names {
		for _, m := range s.services[name].methods {
			r.Handle("POST "+m.name, m.serve)
		}
	}
}

// chainUnary joins all interceptors into one; it returns nil if there are none.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) <= 1 {
		return first(all)
	}
	rest := chainUnary(all[1:])
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return all[0](ctx, request, info, func(ctx context.Context, request any) (any, error) { return rest(ctx, request, info, next) })
	}
}

// chainStream joins all interceptors into one; it returns nil if there are none.
func chainStream(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(all) <= 1 {
		return first(all)
	}
	rest := chainStream(all[1:])
	return func(implementation any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return all[0](implementation, stream, info, func(implementation any, stream grpc.ServerStream) error {
			return rest(implementation, stream, info, next)
		})
	}
}

// first returns the only element, or nil if there is none.
func first[T any](all []T) (only T) {
	if len(all) > 0 {
		only = all[0]
	}
	return only
}
