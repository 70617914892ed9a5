package websocket

import "time"

// The machine that tests run on may do much else: their clients get more time to answer, and to read.
func init() { lingerTime, goodbyeTime = 30*time.Second, 10*time.Second }
