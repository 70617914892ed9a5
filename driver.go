package filo

import (
	"fmt"
	"os"
)

// Driver is a way to serve connections. Handlers behave the same in each driver.
//
// An operator can choose the driver without a new build: the environment variable FILO_DRIVER, "loop" or "blocking", overrides
// Server.Driver in every server of the process. So if the loop driver fails in production, FILO_DRIVER=blocking switches any
// program to the other driver. A server reads the variable once, when it starts to serve, and logs a line for each listener
// whose driver changes because of it. With any other value the server doesn't start.
type Driver int

const (
	// DriverAuto selects DriverLoop where it is available, for TCP and Unix sockets on Linux, and DriverBlocking otherwise.
	DriverAuto Driver = iota
	// DriverBlocking gives each connection a worker for its whole life.
	DriverBlocking
	// DriverLoop lets connections wait in loops, and gives a worker only to a request that may block. Serve fails if the
	// listener can't be served this way.
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
