package main

import "regexp"

// x/net tests its server for HTTP/2 with a tester that writes and reads frames, over a pipe in memory and in a bubble of synctest. The
// patches let the tester speak to any server, and leave out tests that look into x/net's server.
const (
	xNet        = "golang.org/x/net"
	xNetVersion = "v0.62.0"
)

// xNetTests are the files that test the server. The other files test the client, the parts of both, and server push.
var xNetTests = map[string]*regexp.Regexp{"server_test.go": testFunction, "server_api_test.go": testFunction}

var xNetPatches = []patch{
	// Server.ServeConn passes its connection to Replaced, which inserted/xnet_server.go.txt declares.
	{"http2/server_common.go", "opts *ServeConnOpts) {\n	if opts == nil {\n		opts = &ServeConnOpts{}\n	}\n",
		"opts *ServeConnOpts) {\n	if opts == nil {\n		opts = &ServeConnOpts{}\n	}\n	if Replaced != nil && Replaced(s, c, opts) {\n		return\n	}\n"},
	// The tester waits for x/net's side of the connection, to look into it. Another server has none.
	{"http2/server_common_test.go", "	var connc chan *ServerConn\n	if !wrappedAPI {", "	var connc chan *ServerConn\n	if false {"},
	{"http2/server_common_test.go", "	if !wrappedAPI {\n		st.sc = <-connc", "	if false {\n		st.sc = <-connc"},
	{"http2/server_test.go", "wantConnFlowControlConsumed(consumed int32) {\n", "wantConnFlowControlConsumed(consumed int32) {\n	return\n"},
	{"http2/server_test.go", "st.sc.StartGracefulShutdown()", "st.h1server.Shutdown(context.Background())"},
	// x/net's server widens the connection's window at once. A server needn't.
	{"http2/server_common_test.go", "		f := st.readFrame()\n		if f == nil {\n",
		"		if gotSettingsAck {\n			defer hurry()()\n		}\n		f := st.readFrame()\n		if f == nil && gotSettingsAck {\n			break\n		}\n		if f == nil {\n"},
	{"http2/server_common_test.go", "	if !gotWindowUpdate {\n", "	if !gotWindowUpdate && !gotSettingsAck {\n"},
	// A connection that is still open must not be taken for a closed one.
	{"http2/connframes_test.go", "	if err == errWouldBlock {\n", "	if err == errWouldBlock || err == os.ErrDeadlineExceeded {\n"},
}

// bubblePatches deal with a bubble's time, which stands still while any goroutine runs.
var bubblePatches = []patch{
	// A server has five seconds instead of 25 ms to close a connection.
	{"http2/export_common_test.go", "GoAwayTimeout = 25 * time.Millisecond", "GoAwayTimeout = 5 * time.Second"},
	// filo gives the connection to another worker when a handler has waited for a millisecond. The tester waits that long for a frame.
	{"http2/netconn_test.go", "Read(b []byte) (n int, err error) {\n	if c.autoWait {\n		synctest.Wait()\n",
		"Read(b []byte) (n int, err error) {\n	if c.autoWait {\n		synctest.Wait()\n" +
			"		if len(c.loc.peek()) == 0 {\n			time.Sleep(2 * time.Millisecond)\n			synctest.Wait()\n		}\n"},
	// Where a test hangs, the bubble's time would run on for ever, as fast as the machine can.
	{"http2/synctest_test.go", "	synctest.Test(t, func(t *testing.T) {\n",
		"	synctest.Test(t, func(t *testing.T) {\n		defer time.AfterFunc(time.Hour, func() { panic(\"the test has hung for an hour of the bubble's time\") }).Stop()\n"},
	{"http2/synctest_test.go", "\"testing/synctest\"\n", "\"testing/synctest\"\n	\"time\"\n"},
}

// socketPatches let the tests run over sockets, outside of a bubble.
var socketPatches = []patch{
	{"http2/server_test.go", "\"testing/synctest\"", inSockets},
	{"http2/server_api_test.go", "\"testing/synctest\"", inSockets},
	{"http2/server_common_test.go", "\"testing/synctest\"", inSockets},
	{"http2/connframes_test.go", "\"testing/synctest\"", inSockets},
	{"http2/netconn_test.go", "\"testing/synctest\"", inSockets},
	// In a bubble, everything that a server sends has arrived when the tester reads. Over sockets, the tester waits for it.
	{"http2/netconn_test.go", "Read(b []byte) (n int, err error) {\n	if c.autoWait {\n",
		"Read(b []byte) (n int, err error) {\n	if c.autoWait {\n		c.SetReadDeadline(time.Now().Add(patience))\n"},
	{"http2/connframes_test.go", "wantIdle() {\n", "wantIdle() {\n	defer hurry()()\n"},
	{"http2/server_common_test.go", "	synctest.Wait()\n	st.callsMu.Lock()\n", "	st.awaitCall()\n	st.callsMu.Lock()\n"},
}

// inSockets imports a package whose Wait does nothing: outside of a bubble, it can't be known when a server's goroutines have come to rest.
const inSockets = "synctest \"golang.org/x/net/filosynctest\""
