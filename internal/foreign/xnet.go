package main

import "regexp"

// x/net tests its HTTP/2 server with a tester that writes and reads frames, over an in-memory pipe in a synctest bubble. The patches make the
// tester work with any server, and remove checks that inspect x/net's server.
const (
	xNet        = "golang.org/x/net"
	xNetVersion = "v0.62.0"
)

// xNetTests lists the files that test the server. Other files test the client, code that client and server share, and server push.
var xNetTests = map[string]*regexp.Regexp{"server_test.go": testFunction, "server_api_test.go": testFunction}

var xNetPatches = []patch{
	// Server.ServeConn passes its connection to Replaced, which inserted/xnet_server.go.txt declares.
	{"http2/server_common.go", "opts *ServeConnOpts) {\n	if opts == nil {\n		opts = &ServeConnOpts{}\n	}\n",
		"opts *ServeConnOpts) {\n	if opts == nil {\n		opts = &ServeConnOpts{}\n	}\n	if Replaced != nil && Replaced(s, c, opts) {\n		return\n	}\n"},
	// The tester waits for x/net's ServerConn, to inspect it. Other servers have none.
	{"http2/server_common_test.go", "	var connc chan *ServerConn\n	if !wrappedAPI {", "	var connc chan *ServerConn\n	if false {"},
	{"http2/server_common_test.go", "	if !wrappedAPI {\n		st.sc = <-connc", "	if false {\n		st.sc = <-connc"},
	{"http2/server_test.go", "wantConnFlowControlConsumed(consumed int32) {\n", "wantConnFlowControlConsumed(consumed int32) {\n	return\n"},
	{"http2/server_test.go", "st.sc.StartGracefulShutdown()", "st.h1server.Shutdown(context.Background())"},
	// The tester expects that the server widens the connection's window at once, as x/net's does. Other servers need not.
	{"http2/server_common_test.go", "		f := st.readFrame()\n		if f == nil {\n",
		"		if gotSettingsAck {\n			defer hurry()()\n		}\n		f := st.readFrame()\n		if f == nil && gotSettingsAck {\n			break\n		}\n		if f == nil {\n"},
	{"http2/server_common_test.go", "	if !gotWindowUpdate {\n", "	if !gotWindowUpdate && !gotSettingsAck {\n"},
	// If the tester's read times out, the connection is still open, so the tester must not report that it has been closed.
	{"http2/connframes_test.go", "	if err == errWouldBlock {\n", "	if err == errWouldBlock || err == os.ErrDeadlineExceeded {\n"},
}

// bubblePatches adapt the tests to the time in a bubble, which stands still while any goroutine runs.
var bubblePatches = []patch{
	// A server may take five seconds instead of 25 ms to close a connection.
	{"http2/export_common_test.go", "GoAwayTimeout = 25 * time.Millisecond", "GoAwayTimeout = 5 * time.Second"},
	// When a handler has waited for a millisecond, filo passes the connection to another worker. So the tester waits two milliseconds for a frame.
	{"http2/netconn_test.go", "Read(b []byte) (n int, err error) {\n	if c.autoWait {\n		synctest.Wait()\n",
		"Read(b []byte) (n int, err error) {\n	if c.autoWait {\n		synctest.Wait()\n" +
			"		if len(c.loc.peek()) == 0 {\n			time.Sleep(2 * time.Millisecond)\n			synctest.Wait()\n		}\n"},
	// If a test hangs, the time in the bubble would advance for ever, as fast as the machine can advance it.
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
	// In a bubble, all frames that a server sends have arrived before the tester reads. Over sockets, the tester waits for them.
	{"http2/netconn_test.go", "Read(b []byte) (n int, err error) {\n	if c.autoWait {\n",
		"Read(b []byte) (n int, err error) {\n	if c.autoWait {\n		c.SetReadDeadline(time.Now().Add(patience))\n"},
	{"http2/connframes_test.go", "wantIdle() {\n", "wantIdle() {\n	defer hurry()()\n"},
	{"http2/server_common_test.go", "	synctest.Wait()\n	st.callsMu.Lock()\n", "	st.awaitCall()\n	st.callsMu.Lock()\n"},
}

// inSockets imports a package whose Wait does nothing, because outside of a bubble nobody can tell when all goroutines of a server are blocked.
const inSockets = "synctest \"golang.org/x/net/filosynctest\""
