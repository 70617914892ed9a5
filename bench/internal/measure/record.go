// Package measure runs one measurement of one server at a time, and stores the figures.
package measure

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Kind is the kind of a measurement.
type Kind string

// The kinds.
const (
	Peak     Kind = "peak"     // a closed loop or, for idle, mixed and overload rows, the measurement for that kind of row
	Rate     Kind = "rate"     // an open loop, at a percentage of the slowest server's peak
	Syscalls Kind = "syscalls" // a closed loop under strace
)

// Kinds are all kinds.
var Kinds = []Kind{Peak, Rate, Syscalls}

// Cell identifies a measurement: the peer, the row and the way in which it is measured.
type Cell struct {
	Kind    Kind   `json:"kind"`
	Row     string `json:"row"`
	Peer    string `json:"peer"`
	Hash    string `json:"hash"`              // the peer's Hash
	Pinned  bool   `json:"pinned,omitempty"`  // server and generator are each bound to one processor
	Procs   int    `json:"procs,omitempty"`   // GOMAXPROCS; 0 is the server's own default
	Percent int    `json:"percent,omitempty"` // for Rate: the rate as a percentage of the slowest server's peak
	Seconds int    `json:"seconds"`
}

// Record is the result of one run.
type Record struct {
	Cell
	Round   int                `json:"round"`
	Figures map[string]float64 `json:"figures"`
}

// The names of figures. A Record has the figures that its run could determine.
const (
	Throughput  = "requests/s"
	CPU         = "cpu-µs/request"
	P50         = "p50-ms"
	P99         = "p99-ms"
	P999        = "p99.9-ms"
	Offered     = "offered/s"
	Lateness    = "generator-late-p99-ms"
	AnswerSize  = "B/answer" // with the head
	PeakMemory  = "peak-MB"
	Objects     = "allocs/request"
	Bytes       = "allocated-B/request"
	Voluntary   = "voluntary-switches/request"
	Involuntary = "involuntary-switches/request"
	Calls       = "syscalls/request"
	IdleMemory  = "KB/idle-connection"
	BurstTime   = "burst-ms"
	Refused     = "refused/s"
	RefusedP50  = "refused-p50-ms"
	RefusedP99  = "refused-p99-ms"
	Stolen      = "stolen-%" // the share of the processors' time that the machine's host took
)

// Store keeps records in a file of JSON lines, and in memory.
type Store struct {
	file    *os.File // nil: records are kept only in memory
	records map[Cell][]Record
}

// Open reads the records of a file, and creates the file if there is none. An empty name keeps them in memory only. With fresh, Open empties the
// file. It drops an incomplete last line.
func Open(name string, fresh bool) (*Store, error) {
	s := &Store{records: map[Cell][]Record{}}
	if name == "" {
		return s, nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	flags := os.O_RDWR | os.O_CREATE
	if fresh {
		flags |= os.O_TRUNC
	}
	var err error
	if s.file, err = os.OpenFile(name, flags, 0o644); err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// read reads the records, and truncates the file after its last whole line.
func (s *Store) read() error {
	lines, size := bufio.NewReader(s.file), int64(0)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		s.records[r.Cell] = append(s.records[r.Cell], r)
		size += int64(len(line))
	}
	if err := s.file.Truncate(size); err != nil {
		return err
	}
	_, err := s.file.Seek(size, 0)
	return err
}

// Add stores a record.
func (s *Store) Add(r Record) error {
	s.records[r.Cell] = append(s.records[r.Cell], r)
	if s.file == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = s.file.Write(append(line, '\n'))
	return err
}

// Empty reports whether there are no records.
func (s *Store) Empty() bool { return len(s.records) == 0 }

// Records returns a cell's records, in the order in which they were added. The caller must not change them.
func (s *Store) Records(c Cell) []Record { return s.records[c] }

// Spread is the median of a figure, and its smallest and largest value.
type Spread struct{ Median, Min, Max float64 }

// Spread returns the spread of a cell's figure, if there is one.
func (s *Store) Spread(c Cell, figure string) (Spread, bool) {
	var values []float64
	for _, r := range s.records[c] {
		if v, ok := r.Figures[figure]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return Spread{Median(values), slices.Min(values), slices.Max(values)}, true
}

// Median returns the middle value, or the mean of the two in the middle. There must be one value at least.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// MiddleMean returns the mean of the middle half: of three values the middle one, of five the middle three, of thirteen the middle seven. Like the
// median it is insensitive to a few outliers, and it varies less between measurements than the median. There must be one value at least.
func MiddleMean(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	outer := (len(sorted) + 1) / 4
	sum, middle := 0.0, sorted[outer:len(sorted)-outer]
	for _, v := range middle {
		sum += v
	}
	return sum / float64(len(middle))
}

// Close closes the file, if there is one.
func (s *Store) Close() error { return s.file.Close() }
