package filo

import "runtime"

// BlockingDriver reports whether a server whose Driver is DriverAuto serves sockets by the blocking driver here: the tests of the
// root package run with either driver, by FILO_DRIVER.
func BlockingDriver() bool {
	driver, err := chooseDriver(DriverAuto)
	if err != nil {
		panic(err)
	}
	return driver == DriverBlocking || runtime.GOOS != "linux"
}
