package main

// The tests of x/net's server for HTTP/2 have a tester that speaks with it in frames. These patches let it speak with any server, and leave
// out what looks into x/net's own.
const (
	xNet        = "golang.org/x/net"
	xNetVersion = "v0.62.0" // newer versions may leave all to net/http and its tests
)

// xNetTests are the files that test the server. The others test the client, or functions inside.
var xNetTests = []string{"server_test.go", "server_api_test.go"}

var xNetPatches = []patch{
	// inserted/xnet_server.go.txt declares Replaced.
	{"http2/server_common.go", "opts *ServeConnOpts) {\n	if opts == nil {\n		opts = &ServeConnOpts{}\n	}\n",
		"opts *ServeConnOpts) {\n	if opts == nil {\n		opts = &ServeConnOpts{}\n	}\n	if Replaced != nil && Replaced(s, c, opts) {\n		return\n	}\n"},
	// The tester keeps x/net's own connection, to look into it.
	{"http2/server_common_test.go", "	var connc chan *ServerConn\n	if !wrappedAPI {", "	var connc chan *ServerConn\n	if false {"},
	{"http2/server_common_test.go", "	if !wrappedAPI {\n		st.sc = <-connc", "	if false {\n		st.sc = <-connc"},
	{"http2/server_test.go", "wantConnFlowControlConsumed(consumed int32) {\n", "wantConnFlowControlConsumed(consumed int32) {\n	return\n"},
	{"http2/server_test.go", "st.sc.StartGracefulShutdown()", "st.h1server.Shutdown(context.Background())"},
	// A server needn't open the connection's window any wider.
	{"http2/server_common_test.go", "		f := st.readFrame()\n		if f == nil {\n",
		"		if gotSettingsAck {\n			defer hurry()()\n		}\n		f := st.readFrame()\n		if f == nil && gotSettingsAck {\n			break\n		}\n		if f == nil {\n"},
	{"http2/server_common_test.go", "	if !gotWindowUpdate {\n", "	if !gotWindowUpdate && !gotSettingsAck {\n"},
}

// bubblePatches let other servers take their time to close a connection. In a bubble that takes none.
var bubblePatches = []patch{
	{"http2/export_common_test.go", "GoAwayTimeout = 25 * time.Millisecond", "GoAwayTimeout = 5 * time.Second"},
}

// socketPatches let the tests run outside of a bubble of synctest, over sockets.
var socketPatches = []patch{
	{"http2/server_test.go", "\"testing/synctest\"", inSockets},
	{"http2/server_api_test.go", "\"testing/synctest\"", inSockets},
	{"http2/server_common_test.go", "\"testing/synctest\"", inSockets},
	{"http2/connframes_test.go", "\"testing/synctest\"", inSockets},
	{"http2/netconn_test.go", "\"testing/synctest\"", inSockets},
	// What is to come takes a while.
	{"http2/netconn_test.go", "Read(b []byte) (n int, err error) {\n	if c.autoWait {\n", "Read(b []byte) (n int, err error) {\n	if c.autoWait {\n		c.SetReadDeadline(time.Now().Add(patience))\n"},
	{"http2/connframes_test.go", "wantIdle() {\n", "wantIdle() {\n	defer hurry()()\n"},
	{"http2/server_common_test.go", "	synctest.Wait()\n	st.callsMu.Lock()\n", "	st.awaitCall()\n	st.callsMu.Lock()\n"},
}

// inSockets imports a package whose Wait doesn't wait: there is no telling when the goroutines of a server with sockets have come to rest.
const inSockets = "synctest \"golang.org/x/net/filosynctest\""
