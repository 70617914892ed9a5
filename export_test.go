package filo

import "runtime"

// BufferedBodies returns how many bytes the buffers of request bodies take.
func (s *Server) BufferedBodies() int64 { return s.bodies.used.Load() }

// BlockingDriver reports whether a server whose Driver is DriverAuto serves sockets by the blocking driver here: the tests of the
// root package run with either driver, by FILO_DRIVER.
func BlockingDriver() bool {
	driver, err := chooseDriver(DriverAuto)
	if err != nil {
		panic(err)
	}
	return driver == DriverBlocking || runtime.GOOS != "linux"
}
