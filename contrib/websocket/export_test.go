package websocket

import "time"

// Tests may run on a busy machine, so their clients get more time to answer and to read.
func init() { lingerTime, goodbyeTime = 30*time.Second, 10*time.Second }
