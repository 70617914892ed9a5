//go:build !unix

package static

import "os"

const openFlags = os.O_RDONLY
