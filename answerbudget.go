package filo

// DefaultMaxBufferedAnswers is the default of Server.MaxBufferedAnswers.
const DefaultMaxBufferedAnswers = 128 << 20

// errAnswersFull is the refusal of an answer for which there is no room. internal/budget counts; internal/http2conn and loopconn.go have the
// answers that need room.
var errAnswersFull = &HTTPError{Status: 503, Detail: "too many answers wait for their clients", Err: ErrBusy}
