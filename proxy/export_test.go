package proxy

// SetTurn makes n the number of attempts that were made so far.
func (p *Proxy) SetTurn(n uint32) { p.turn.Store(n) }

// HasDotSegment is hasDotSegment.
var HasDotSegment = hasDotSegment
