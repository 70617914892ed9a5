//go:build !linux || !(amd64 || arm64)

package openloop

import (
	"context"
	"errors"
	"fmt"
)

// Run returns an error that wraps errors.ErrUnsupported: the client needs Linux's epoll.
func Run(context.Context, Options) (*Result, error) {
	return nil, fmt.Errorf("openloop: only Linux on amd64 and arm64: %w", errors.ErrUnsupported)
}
