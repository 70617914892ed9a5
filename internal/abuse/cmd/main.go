// Command cmd runs each attack of package abuse on an HTTP server, while a polite client uses the server. It prints a table of how the server
// treated both. It exits with 1 if the server hasn't ended or bounded an attack, or if a request of the polite client has failed. A slow
// answer is not a failure.
//
// With the process IDs of the server, it also measures the server's processor time and memory. Each attack runs in a separate process, so
// that it doesn't slow down the polite client.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/abuse"
)

// config holds the parameters of a run.
type config struct {
	addr     string
	tls      bool
	tlsAddr  string // the server's TLS address, which attacks on handshakes use
	once     bool   // attackers don't reconnect
	sources  int    // the number of addresses from which attackers connect
	source   string // the address from which the polite client connects
	pids     []string
	attacks  []*abuse.Attack
	duration time.Duration // of each attack
	before   time.Duration // how long the polite client runs alone before each attack
	timeouts bool
	rate     float64

	attacking atomic.Int64 // the processor time of the attackers that have ended, in nanoseconds
}

func main() {
	c := config{addr: "127.0.0.1:8080", attacks: abuse.Attacks(), duration: 3 * time.Second, before: time.Second, rate: 400}
	var one string
	var serving server
	together := false
	flag.StringVar(&c.addr, "addr", c.addr, "the server's `address`")
	flag.BoolVar(&c.tls, "tls", false, "use TLS, without checking the certificate")
	flag.Func("pid", "the server's `processes`, with commas between them", func(s string) error {
		c.pids = strings.Split(s, ",")
		return nil
	})
	flag.Func("only", "the only `attacks` to run, with commas between them", c.choose)
	flag.DurationVar(&c.duration, "for", c.duration, "how long each attack lasts")
	flag.DurationVar(&c.before, "before", c.before, "how long the polite client is alone before each attack")
	flag.BoolVar(&c.timeouts, "timeouts", false, "attacks last longer than the server's time-outs, so it must end the slow ones too")
	flag.Float64Var(&c.rate, "rate", c.rate, "the polite client's requests per second")
	flag.StringVar(&c.tlsAddr, "tls-addr", "", "the server's `address` for TLS, for attacks on handshakes (default: addr)")
	flag.BoolVar(&c.once, "once", false, "an attacker that has lost its connection doesn't come back")
	flag.IntVar(&c.sources, "sources", 0, "attackers come from so many `addresses` of 127.1.0.0/16, instead of the system's choice")
	flag.StringVar(&c.source, "source", "", "the polite client comes from this `address`, instead of the system's choice")
	flag.BoolVar(&together, "together", false, "run all attacks at once, beside a polite client of each kind that they have")
	flag.StringVar(&serving.addr, "serve", "", "attack nothing: be a server to attack at this `address`, by HTTP/1.1 and HTTP/2 without TLS")
	flag.StringVar(&serving.tlsAddr, "serve-tls", "", "that server's `address` for TLS")
	flag.StringVar(&serving.kind, "server", "net/http", "whose server that is: net/http, filo, or blocking for filo's blocking driver")
	flag.IntVar(&serving.concurrency, "concurrency", 0, "filo's Concurrency (default: filo's)")
	flag.StringVar(&one, oneFlag, "", "run one `attack` alone, and print its figure as JSON")
	flag.Parse()
	if flag.NArg() > 0 || c.duration <= 0 || c.before <= 0 || c.rate <= 0 {
		fmt.Fprintln(os.Stderr, "abuse: the times and the rate must be positive, and there are no arguments but flags")
		flag.Usage()
		os.Exit(2)
	}
	var err error
	ok := true
	switch {
	case serving.addr != "":
		err = serving.run()
	case one != "":
		err = c.runOne(os.Stdout, one)
	case together:
		ok, err = c.runTogether(os.Stdout)
	default:
		ok, err = c.runAll(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "abuse:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// oneFlag is the flag that makes a process run one attack.
const oneFlag = "one"

// choose leaves only the attacks with these names, which are separated by commas.
func (c *config) choose(names string) error {
	c.attacks = nil
	for name := range strings.SplitSeq(names, ",") {
		a, err := abuse.Find(name)
		if err != nil {
			return err
		}
		c.attacks = append(c.attacks, a)
	}
	return nil
}

// dialer returns a function that opens connections from the address that source returns. If bare is true and the server has a separate TLS
// address, they go to that address. Over TLS, ALPN offers the protocols. If protocols is nil, the function makes no TLS handshake, even at a
// TLS address. A connection's send buffer is small, so the number of bytes sent is close to the number that the server has received.
func (c *config) dialer(source func() string, bare bool, protocols []string) func() (net.Conn, error) {
	addr := c.addr
	secure := c.tls
	if bare && c.tlsAddr != "" {
		addr, secure = c.tlsAddr, true
	}
	return func() (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		if from := source(); from != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		}
		nc, err := d.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		nc.(*net.TCPConn).SetWriteBuffer(16 << 10)
		if !secure || protocols == nil {
			return nc, nil
		}
		secured := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: protocols})
		secured.SetDeadline(time.Now().Add(5 * time.Second))
		err = secured.Handshake()
		if err == nil && protocols[0] == "h2" && secured.ConnectionState().NegotiatedProtocol != "h2" {
			err = errors.New("the server doesn't take HTTP/2 by TLS's ALPN")
		}
		if err != nil {
			nc.Close()
			return nil, err
		}
		secured.SetDeadline(time.Time{})
		return secured, nil
	}
}

// attackers returns a function that opens an attack's connections.
func (c *config) attackers(a *abuse.Attack) func() (net.Conn, error) {
	protocols := []string{"http/1.1"}
	switch {
	case a.Bare:
		protocols = nil
	case a.ByHTTP2():
		protocols = []string{"h2"}
	}
	var n atomic.Int64
	return c.dialer(func() string {
		if c.sources == 0 {
			return ""
		}
		i := int(n.Add(1)) % c.sources
		return fmt.Sprintf("127.1.%d.%d", i>>8, i&0xff)
	}, a.Bare, protocols)
}

// client starts a polite client of this kind.
func (c *config) client(kind abuse.Client) (*abuse.Polite, error) {
	rate := c.rate
	if kind == abuse.Handshakes {
		rate = min(rate, 100) // a handshake costs as much as a hundred requests
	}
	return abuse.StartClient(kind, c.dialer(func() string { return c.source }, kind == abuse.Handshakes, kind.Protocols()), rate)
}

// runOne runs one attack, and prints its figure.
func (c *config) runOne(w io.Writer, name string) error {
	a, err := abuse.Find(name)
	if err != nil {
		return err
	}
	a.Once = a.Once || c.once
	ctx, cancel := context.WithTimeout(context.Background(), c.duration)
	defer cancel()
	return json.NewEncoder(w).Encode(a.Run(ctx, c.attackers(a)))
}

// attack runs an attack in a separate process.
func (c *config) attack(a *abuse.Attack) (f abuse.Figure, err error) {
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	args := []string{self, "-" + oneFlag, a.Name, "-addr", c.addr, "-tls-addr", c.tlsAddr, fmt.Sprintf("-tls=%t", c.tls),
		fmt.Sprintf("-once=%t", c.once), "-sources", fmt.Sprint(c.sources), "-for", c.duration.String()}
	// Attackers stand for other machines, so they should not take processor time from the server or the polite client. They run with niceness
	// 19, the lowest priority: an increment of 39 yields 19 from any niceness. Even so, 63 attackers together take half of the processors
	// from a server with niceness 0.
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice, "-n", "39"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("the process of %s: %w", a.Name, err)
	}
	c.attacking.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
	return f, json.Unmarshal(out, &f)
}

// runAll runs one attack after the other, and reports whether the server has withstood all of them.
func (c *config) runAll(w io.Writer) (ok bool, err error) {
	fmt.Fprintf(w, "Each attack for %v; the polite client asks %v times a second.\n\n%s", c.duration, c.rate, header)
	clients := map[abuse.Client]*abuse.Polite{}
	defer func() {
		for _, client := range clients {
			client.Stop()
		}
	}()
	ok = true
	for _, a := range c.attacks {
		if clients[a.Client] == nil {
			client, err := c.client(a.Client)
			if err != nil {
				return false, err
			}
			clients[a.Client] = client
		}
		r := row{attack: a}
		if err := c.runRow(&r, clients[a.Client]); err != nil {
			return false, err
		}
		r.judge(c)
		fmt.Fprintln(w, &r)
		ok = ok && len(r.complaints) == 0
	}
	return ok, nil
}

// runTogether runs all attacks at once, together with a polite client of each kind. ok is true if no request of a polite client has failed.
func (c *config) runTogether(w io.Writer) (ok bool, err error) {
	clients, phases := map[abuse.Client]*abuse.Polite{}, map[abuse.Client]*abuse.Phase{}
	defer func() {
		for _, client := range clients {
			client.Stop()
		}
	}()
	for _, a := range c.attacks {
		if clients[a.Client] == nil {
			client, err := c.client(a.Client)
			if err != nil {
				return false, err
			}
			clients[a.Client] = client
		}
	}
	for kind, client := range clients {
		phases[kind] = client.Begin()
	}
	used, err := c.watch(func() error {
		failures := make(chan error, len(c.attacks))
		for _, a := range c.attacks {
			go func() {
				_, err := c.attack(a)
				failures <- err
			}()
		}
		var err error
		for range c.attacks {
			err = errors.Join(err, <-failures)
		}
		return err
	})
	if err != nil {
		return false, err
	}
	fmt.Fprintf(w, "%d attacks at once for %v: %s processors busy with the server, %.2f with the attackers, %d MB at most\n\n",
		len(c.attacks), c.duration, used.load(), time.Duration(c.attacking.Load()).Seconds()/used.span.Seconds(), used.peak>>20)
	fmt.Fprint(w, "| polite client | answers | 503 | errors | p50, p99 ms | the first error |\n| --- | --: | --: | --: | --: | --- |\n")
	ok = true
	for _, kind := range slices.Sorted(maps.Keys(clients)) {
		clients[kind].Begin()
		f := phases[kind].Figure()
		first := ""
		if f.First != nil {
			first = f.First.Error()
		}
		fmt.Fprintf(w, "| %v | %d | %d | %d | %s | %s |\n", kind, f.Answers, f.Busy, f.Errors, latencies(f), first)
		ok = ok && f.Errors == 0 && f.Answers > 0
	}
	return ok, nil
}

// runRow measures an attack.
func (c *config) runRow(r *row, polite *abuse.Polite) (err error) {
	r.before, err = c.measure(polite, func() error {
		time.Sleep(c.before)
		return nil
	}, &r.politeBefore)
	if err != nil {
		return err
	}
	calls, _, counted := c.calls()
	r.during, err = c.measure(polite, func() (err error) {
		r.figure, err = c.attack(r.attack)
		return err
	}, &r.politeDuring)
	if err != nil || !counted {
		return err
	}
	after, peak, counted := c.calls()
	r.counted, r.calls, r.peak = counted, after-calls, peak
	return nil
}

// calls requests the counts of the server's Site. ok is false if the server doesn't have /calls.
func (c *config) calls() (calls, peak int, ok bool) {
	status, body, err := abuse.Get(context.Background(), c.dialer(func() string { return c.source }, false, []string{"h2"}), "/calls")
	if err != nil || status != 200 {
		return 0, 0, false
	}
	n, err := fmt.Sscan(body, &calls, &peak)
	return calls, peak, err == nil && n == 2
}

// row is the result of an attack, printed as a row of the table.
type row struct {
	attack                     *abuse.Attack
	figure                     abuse.Figure
	before, during             usage
	politeBefore, politeDuring abuse.PhaseFigure
	counted                    bool
	calls, peak                int
	complaints                 []string
}

// judge records the complaints about the server's reaction.
func (r *row) judge(c *config) {
	complain := func(format string, args ...any) { r.complaints = append(r.complaints, fmt.Sprintf(format, args...)) }
	if s := r.attack.Judge(&r.figure, c.timeouts); s != "" {
		complain("%s", s)
	}
	if grown := r.during.peak - r.before.memory; grown > r.attack.Growth {
		complain("%d MB more memory", grown>>20)
	}
	if limit := r.figure.Conns * r.figure.MaxStreams; r.counted && limit > 0 && r.peak > limit {
		complain("%d handlers ran at once, and %d connections may have %d", r.peak, r.figure.Conns, limit)
	}
	for _, phase := range []abuse.PhaseFigure{r.politeBefore, r.politeDuring} {
		if phase.Errors > 0 || phase.Answers == 0 {
			complain("the polite client: %d errors, first: %v", phase.Errors, phase.First)
		}
	}
}

const header = "| attack | ended by | after ms | frames | connections | 1000 frames/s | streams | answers | RST_STREAM received " +
	"| calls | at once | CPU before | CPU | MB before | MB at most | polite p50, p99 before | polite p50, p99 | answers | 503 | errors | verdict |" + `
| --- | --- | --: | --: | --: | --: | --: | --: | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |
`

// String returns the row of the table.
func (r *row) String() string {
	f := &r.figure
	by := counts(f.Ended)
	if f.Endless > 0 {
		by = append(by, fmt.Sprintf("never × %d", f.Endless))
	}
	if f.Undone > 0 {
		by = append(by, fmt.Sprintf("no connection × %d", f.Undone))
	}
	verdict := "good"
	if len(r.complaints) > 0 {
		verdict = strings.Join(r.complaints, "; ")
	}
	calls, peak := "", ""
	if r.counted {
		calls, peak = fmt.Sprint(r.calls), fmt.Sprint(r.peak)
	}
	cells := []any{
		r.attack.Name, strings.Join(by, ", "), f.Longest.Milliseconds(), f.LongestFrames, f.Conns,
		fmt.Sprintf("%.1f", float64(f.Frames)/1000/f.Time.Seconds()), f.Streams, f.Answers, strings.Join(counts(f.Resets), ", "), calls, peak,
		r.before.load(), r.during.load(), r.before.memory >> 20, r.during.peak >> 20,
		latencies(r.politeBefore), latencies(r.politeDuring), r.politeDuring.Answers, r.politeDuring.Busy,
		r.politeBefore.Errors + r.politeDuring.Errors, verdict,
	}
	return fmt.Sprintf(strings.Repeat("| %v ", len(cells))+"|", cells...)
}

// counts lists how often each value has occurred.
func counts(of map[string]int) (list []string) {
	for what, n := range of {
		list = append(list, fmt.Sprintf("%s × %d", what, n))
	}
	slices.Sort(list)
	return list
}

func latencies(f abuse.PhaseFigure) string {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	return fmt.Sprintf("%.2f, %.2f", ms(f.P50), ms(f.P99))
}
