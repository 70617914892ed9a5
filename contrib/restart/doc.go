//go:build unix

// Package restart replaces a running server with a new version of its program without losing a request, and lets systemd open its sockets.
//
//	go get github.com/filohttp/filo/contrib/restart@latest
//
// The package is a separate module, so that filo doesn't depend on go-systemd.
//
//	r, err := restart.New()
//	if err != nil {
//		return err
//	}
//	listener, err := r.Listen(":8080")
//	if err != nil {
//		return err
//	}
//	s := &filo.Server{Handler: handler, IdleGrace: 5 * time.Second}
//	return r.Run(ctx, func(ctx context.Context) error { return s.RunListener(ctx, listener) })
//
// Install the new binary, and send SIGUSR2. The running program starts the new binary with the same arguments, environment and listening
// sockets, and continues to serve. When the new program serves, the context of the old program's function ends: the old program finishes its
// requests and exits. If the new program ends before that, for example because it can't read its certificate, or isn't ready after
// Options.ReadyTimeout, the old program logs why and continues. New connections wait in the socket, which both programs have open.
//
// For clients that keep connections open, set filo.Server.IdleGrace to a longer time than they wait between two requests. Within that time,
// the next answer on a connection tells the client to use a new one. If a connection were closed between two requests instead, the second
// request could be lost. HTTP/2 needs no IdleGrace.
//
// # With a drain and certificates
//
// SIGTERM drains, SIGUSR2 restarts and SIGHUP reloads the certificates, if package health drains in the function that Run calls, and package
// certs reads the certificates. A restart needs no drain, since the new program already serves. So health.Health.DrainContext ends at once in
// a restart, and the old program's answers to further probes don't report a failure.
//
//	store, err := certs.New(certs.Options{Pairs: []certs.Pair{{Cert: "cert.pem", Key: "key.pem"}}})
//	if err != nil {
//		return err
//	}
//	store.ReloadOn(ctx, syscall.SIGHUP)
//	s.TLSConfig = store.TLSConfig()
//	probes.Attach(s)
//	return r.Run(ctx, func(ctx context.Context) error {
//		ctx, cancel := probes.DrainContext(ctx, 10*time.Second)
//		defer cancel()
//		return s.RunListenerTLS(ctx, listener, "", "")
//	})
//
// # systemd
//
// Listen takes a socket that systemd has opened (LISTEN_FDS), if there is one for the address. Run tells systemd when the program is ready,
// when it reloads and when it stops. It also sends the watchdog's messages, and says which process is the main one after a restart:
//
//	# app.socket
//	[Socket]
//	ListenStream=8080
//
//	# app.service
//	[Service]
//	Type=notify
//	ExecStart=/usr/local/bin/app
//	ExecReload=/bin/kill -USR2 $MAINPID
//	WatchdogSec=30
//	TimeoutStopSec=40
//
// Then "systemctl reload app" is a restart in place. "systemctl restart app" ends the program before it starts the next one; with app.socket,
// connections that arrive in between wait instead of being refused.
//
// # Limits
//
// The program must not be process 1 of a container, because the container ends when process 1 ends: start a new container instead. A listener
// on port 0 isn't handed over, since the next program asks the system for another free port. This package is for Unix systems.
package restart
