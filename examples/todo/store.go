package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/filohttp/filo"
)

const (
	// maxTodos is the maximum number of todos. There is a limit because anyone can add todos.
	maxTodos = 10_000
	// queryTimeout is how long a request waits for the database, including the busy time-out below.
	queryTimeout = 5 * time.Second
	// busyTimeout is how long a statement waits for a lock of another statement, in milliseconds.
	busyTimeout = 2000
	// maxConns is the maximum number of connections. There are several, so that readers don't wait for the writer.
	maxConns = 4
)

// Errors of the store that have a status for the client. Any other error becomes a 500, and its text is logged. Requests share these errors, so
// nothing may change them.
var (
	errNotFound = filo.Error(http.StatusNotFound, "no such todo")
	errFull     = filo.Error(http.StatusConflict, fmt.Sprintf("there are %d todos, and there can't be more", maxTodos))
)

// todo is one thing to do, as it is stored and as the API shows it.
type todo struct {
	ID      int64     `json:"id" minimum:"1"`
	Title   string    `json:"title" minLength:"1" maxLength:"200"`
	Done    bool      `json:"done"`
	Created time.Time `json:"created"`
}

const schema = `
CREATE TABLE IF NOT EXISTS todos (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	title   TEXT NOT NULL CHECK (length(title) BETWEEN 1 AND 200),
	done    INTEGER NOT NULL DEFAULT 0 CHECK (done IN (0, 1)),
	created INTEGER NOT NULL -- seconds since 1970
) STRICT;
CREATE INDEX IF NOT EXISTS todos_by_done ON todos (done, id);`

// store keeps todos in a SQLite file. It is safe for concurrent use.
type store struct{ db *sql.DB }

// openStore opens the file, or creates it. Several processes may have the file open.
func openStore(ctx context.Context, path string) (*store, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// With a write-ahead log, readers and the writer don't wait for each other. With NORMAL, SQLite syncs the log at checkpoints: a power failure
	// can't damage the file, but the last changes may be lost. A transaction acquires the write lock at its beginning, since SQLite doesn't let a
	// transaction that has already read wait for the lock.
	options := url.Values{
		"_txlock": {"immediate"},
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout), "journal_mode(WAL)", "synchronous(NORMAL)"},
	}
	name := url.URL{Scheme: "file", Path: filepath.ToSlash(absolute), RawQuery: options.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), db.Close())
	}
	return &store{db}, nil
}

func (s *store) close() error { return s.db.Close() }

// filter selects todos by whether they are done. nil selects all.
type filter *bool

// page is a part of the list.
type page struct {
	Todos []todo `json:"todos" nullable:"false" doc:"The newest first."`
	Open  int    `json:"open" doc:"How many todos are open, on whatever page."`
	Done  int    `json:"done" doc:"How many todos are done, on whatever page."`
	Next  int64  `json:"next,omitempty" doc:"The parameter before for the next page; left out on the last one."`
}

// list returns todos with smaller ids than the given one (before), the newest first, and limit of them at most.
func (s *store) list(ctx context.Context, done filter, before int64, limit int) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	result := page{Todos: []todo{}}
	err := s.db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE done = 0), count(*) FILTER (WHERE done = 1) FROM todos`).
		Scan(&result.Open, &result.Done)
	if err != nil {
		return page{}, failure("counting todos", err)
	}
	rows, err := s.db.QueryContext(ctx, `SELECT id, title, done, created FROM todos
		WHERE (?1 IS NULL OR done = ?1) AND id < ?2 ORDER BY id DESC LIMIT ?3`, (*bool)(done), before, limit+1)
	if err != nil {
		return page{}, failure("listing todos", err)
	}
	defer rows.Close()
	for rows.Next() {
		t, err := scan(rows)
		if err != nil {
			return page{}, failure("listing todos", err)
		}
		result.Todos = append(result.Todos, t)
	}
	if err := rows.Err(); err != nil {
		return page{}, failure("listing todos", err)
	}
	if len(result.Todos) > limit {
		result.Todos = result.Todos[:limit]
		result.Next = result.Todos[limit-1].ID
	}
	return result, nil
}

// add stores a new todo. It returns errFull if there are too many.
func (s *store) add(ctx context.Context, title string) (todo, error) {
	t, err := s.one(ctx, "adding a todo", `INSERT INTO todos (title, created)
		SELECT ?1, ?2 WHERE (SELECT count(*) FROM todos) < ?3 RETURNING id, title, done, created`, title, time.Now().Unix(), maxTodos)
	if errors.Is(err, errNotFound) {
		return todo{}, errFull
	}
	return t, err
}

// get returns a todo, or errNotFound.
func (s *store) get(ctx context.Context, id int64) (todo, error) {
	return s.one(ctx, "reading a todo", `SELECT id, title, done, created FROM todos WHERE id = ?`, id)
}

// change sets the title and the state of a todo. nil leaves a value unchanged. It returns errNotFound if there is no such todo.
func (s *store) change(ctx context.Context, id int64, title *string, done *bool) (todo, error) {
	return s.one(ctx, "changing a todo", `UPDATE todos SET title = coalesce(?2, title), done = coalesce(?3, done)
		WHERE id = ?1 RETURNING id, title, done, created`, id, title, done)
}

// remove deletes a todo, or returns errNotFound.
func (s *store) remove(ctx context.Context, id int64) error {
	_, err := s.one(ctx, "deleting a todo", `DELETE FROM todos WHERE id = ? RETURNING id, title, done, created`, id)
	return err
}

// one runs a statement that returns one todo.
func (s *store) one(ctx context.Context, what, query string, args ...any) (todo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	t, err := scan(s.db.QueryRowContext(ctx, query, args...))
	if err != nil {
		return todo{}, failure(what, err)
	}
	return t, nil
}

func scan(row interface{ Scan(...any) error }) (t todo, err error) {
	var created int64
	err = row.Scan(&t.ID, &t.Title, &t.Done, &created)
	t.Created = time.Unix(created, 0).UTC()
	return t, err
}

// failure turns an error of the database into an error that says what failed, with the status for the client.
func failure(what string, err error) error {
	var sqliteError *sqlite.Error
	code := 0
	if errors.As(err, &sqliteError) {
		code = sqliteError.Code() & 0xff // the other bits are details
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errNotFound
	case code == sqlite3.SQLITE_BUSY, code == sqlite3.SQLITE_LOCKED, errors.Is(err, context.DeadlineExceeded):
		return &filo.HTTPError{Status: http.StatusServiceUnavailable, Detail: "the database is busy", Err: fmt.Errorf("%s: %w", what, err)}
	case code == sqlite3.SQLITE_FULL:
		return &filo.HTTPError{Status: http.StatusInsufficientStorage, Detail: "the disk is full", Err: fmt.Errorf("%s: %w", what, err)}
	}
	return fmt.Errorf("%s: %w", what, err)
}
