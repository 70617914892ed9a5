// Package postgres starts the PostgreSQL that the compared servers query.
package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/filohttp/filo/bench/internal/database"
	"github.com/filohttp/filo/bench/internal/proc"
)

// ErrMissing is the error of Start if PostgreSQL isn't installed.
var ErrMissing = errors.New("PostgreSQL is neither in PATH nor in /usr/lib/postgresql: `apt-get install postgresql` has it on Debian")

// settings make PostgreSQL 10 or later listen only on a socket, flush nothing to the disk, and do little in the background.
var settings = []string{
	"listen_addresses=", "fsync=off", "autovacuum=off", "max_logical_replication_workers=0", "bgwriter_lru_maxpages=0",
	"checkpoint_timeout=1d", "log_min_messages=fatal",
}

// Server is a running PostgreSQL with package database's table.
type Server struct {
	// ConnString is the connection string for the compared servers. Version is the version of PostgreSQL.
	ConnString, Version string

	folder   string
	identity *syscall.Credential // nil: the same user as this process
	stop     context.CancelFunc
	said     bytes.Buffer  // PostgreSQL's output; may be read once gone is closed
	gone     chan struct{} // closed when PostgreSQL has ended; nil before it is started
}

// Start runs PostgreSQL in a temporary folder, until Stop is called or ctx ends, and fills the table. The error is ErrMissing if PostgreSQL isn't
// installed.
func Start(ctx context.Context) (*Server, error) {
	programs, err := find(debian)
	if err != nil {
		return nil, err
	}
	s := &Server{Version: proc.Version(filepath.Join(programs, "postgres"), "--version")}
	if s.folder, err = os.MkdirTemp("", "filo-postgres"); err != nil {
		return nil, err
	}
	ctx, s.stop = context.WithCancel(ctx)
	if err := s.start(ctx, programs); err != nil {
		s.Stop()
		return nil, fmt.Errorf("PostgreSQL doesn't start: %w: %s", err, s.said.String())
	}
	return s, nil
}

// debian matches the folders in which Debian installs PostgreSQL's programs, one for each version.
const debian = "/usr/lib/postgresql/*/bin"

// find returns the folder of PostgreSQL's programs: the one in PATH or, if none is there, the one with the highest version among those that match the
// pattern.
func find(pattern string) (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(initdb), nil
	}
	folders, _ := filepath.Glob(pattern)
	if len(folders) == 0 {
		return "", ErrMissing
	}
	version := func(folder string) float64 {
		v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(folder)), 64) // the last version with a point was 9.6
		return v
	}
	return slices.MaxFunc(folders, func(a, b string) int { return cmp.Compare(version(a), version(b)) }), nil
}

func (s *Server) start(ctx context.Context, programs string) error {
	if err := s.leaveRoot(); err != nil {
		return err
	}
	data := filepath.Join(s.folder, "data")
	initdb := s.command(ctx, filepath.Join(programs, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	if err := initdb.Run(); err != nil {
		return err
	}
	s.said.Reset()
	args := []string{"-D", data, "-k", s.folder}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	postgres := s.command(ctx, filepath.Join(programs, "postgres"), args...)
	if err := postgres.Start(); err != nil {
		return err
	}
	s.gone = make(chan struct{})
	go func() {
		postgres.Wait()
		close(s.gone)
	}()
	s.ConnString = fmt.Sprintf("host='%s' user=postgres dbname=postgres", s.folder)
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(database.Fill(ctx, conn), conn.Close(ctx))
}

// leaveRoot makes PostgreSQL's programs run as the user postgres if this process runs as root, since PostgreSQL refuses to run as root.
func (s *Server) leaveRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, noUID := strconv.Atoi(account.Uid)
	gid, noGID := strconv.Atoi(account.Gid)
	s.identity = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(noUID, noGID, os.Chown(s.folder, uid, gid))
}

// command returns a command for one of PostgreSQL's programs. When ctx ends, the program gets SIGINT, on which PostgreSQL disconnects its clients and
// ends.
func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.folder, &s.said, &s.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.identity}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// connect tries to connect until it succeeds or PostgreSQL has ended, for at most ten seconds.
func (s *Server) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.ConnString)
		if err == nil {
			return conn, nil
		}
		select {
		case <-s.gone:
			return nil, errors.Join(err, context.Cause(ctx), errors.New("it has ended"))
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends PostgreSQL, and removes its folder.
func (s *Server) Stop() {
	s.stop()
	if s.gone != nil {
		<-s.gone
	}
	os.RemoveAll(s.folder)
}
