package recipes

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/session"
)

// SQLSessions is a session.Store that uses a table in PostgreSQL or SQLite:
//
//	CREATE TABLE sessions (id text PRIMARY KEY, data bytea NOT NULL, version bigint NOT NULL, expires bigint NOT NULL);
//	CREATE INDEX sessions_expires ON sessions (expires);
//
// expires is in Unix seconds.
type SQLSessions struct{ DB *sql.DB }

// Load implements session.Store.
func (s SQLSessions) Load(c *filo.Ctx, id string) (session.Record, error) {
	var record session.Record
	var expires int64
	err := s.DB.QueryRowContext(c.Context(), `SELECT data, version, expires FROM sessions WHERE id = $1 AND expires > $2`,
		id, time.Now().Unix()).Scan(&record.Data, &record.Version, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return session.Record{}, nil
	}
	record.Expires = time.Unix(expires, 0)
	return record, err
}

// Save implements session.Store. It changes the row only if no other request has changed it since it was loaded.
func (s SQLSessions) Save(c *filo.Ctx, id string, record session.Record) (bool, error) {
	statement := `UPDATE sessions SET data = $2, version = $3 + 1, expires = $4 WHERE id = $1 AND version = $3 AND expires > $5`
	if record.Version == 0 {
		// An expired row counts as missing.
		statement = `INSERT INTO sessions (id, data, version, expires) VALUES ($1, $2, $3 + 1, $4)
			ON CONFLICT (id) DO UPDATE SET data = excluded.data, version = excluded.version, expires = excluded.expires WHERE sessions.expires <= $5`
	}
	result, err := s.DB.ExecContext(c.Context(), statement, id, record.Data, int64(record.Version), record.Expires.Unix(), time.Now().Unix())
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

// Delete implements session.Store.
func (s SQLSessions) Delete(c *filo.Ctx, id string) error {
	_, err := s.DB.ExecContext(c.Context(), `DELETE FROM sessions WHERE id = $1`, id)
	return err
}

// Clean removes expired sessions. Call it once an hour, for example from a goroutine that ends with the context of Server.Run.
func (s SQLSessions) Clean(ctx context.Context) error {
	_, err := s.DB.ExecContext(ctx, `DELETE FROM sessions WHERE expires <= $1`, time.Now().Unix())
	return err
}
