package filo

import (
	"fmt"
	"os"
)

// Driver is a way to serve connections. Handlers can't tell one from another.
//
// An operator can choose the driver without a new build: the environment variable FILO_DRIVER, "loop" or "blocking", overrides
// Server.Driver in every server of the process. So FILO_DRIVER=blocking is the way out for all programs when something goes wrong in
// the loop driver. A server reads the variable once, when it starts to serve, and logs a line for each listener that it
// serves by another driver because of it. With any other value the server doesn't start.
type Driver int

const (
	// DriverAuto is DriverLoop where it is possible: on Linux, for TCP and Unix sockets. Others are served by DriverBlocking.
	DriverAuto Driver = iota
	// DriverBlocking gives each connection a worker for as long as it lives.
	DriverBlocking
	// DriverLoop lets connections wait in loops, and gives a worker only to a request that may block. Serve fails with a
	// listener for which it isn't possible.
	DriverLoop
)

// String returns the driver's name: "auto", "blocking" or "loop".
func (d Driver) String() string {
	names := [...]string{"auto", "blocking", "loop"}
	if d < 0 || int(d) >= len(names) {
		return "unknown"
	}
	return names[d]
}

// driverVariable is the environment variable that overrides Server.Driver.
const driverVariable = "FILO_DRIVER"

// chooseDriver returns the driver that the environment asks for, or the program's own choice if the environment asks for none. The
// environment wins also against a program that names its driver: an operator who needs the way out can't change the program.
func chooseDriver(program Driver) (Driver, error) {
	switch value := os.Getenv(driverVariable); value {
	case "":
		return program, nil
	case DriverLoop.String():
		return DriverLoop, nil
	case DriverBlocking.String():
		return DriverBlocking, nil
	default:
		return program, fmt.Errorf(`filo: the environment variable %s is %q: set it to "loop" or "blocking", or unset it to leave the choice to the program`,
			driverVariable, value)
	}
}
