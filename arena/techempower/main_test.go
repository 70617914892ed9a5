package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/jackc/pgx/v5"
)

// start starts the program, and returns a function that gets a path from it.
func start(t *testing.T, database string) (get func(path, contentType string) string) {
	listening := make(chan net.Listener, 1)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, database, func(s *filo.Server, addr string) (net.Listener, error) {
			l, err := s.Listen("127.0.0.1:0")
			if err == nil {
				listening <- l
			}
			return l, err
		})
	}()
	var base string
	select {
	case l := <-listening:
		base = "http://" + l.Addr().String()
	case err := <-ended:
		t.Fatal(err)
	}
	client := http.Client{Transport: new(http.Transport)}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(path, contentType string) string {
		t.Helper()
		answer, err := client.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.Header.Get("Content-Type"); answer.StatusCode != 200 || got != contentType || answer.Header.Get("Server") != "filo" {
			t.Errorf("%s: %d with the type %s by %s", path, answer.StatusCode, got, answer.Header.Get("Server"))
		}
		return strings.TrimSpace(string(text))
	}
}

func TestWithoutDatabase(t *testing.T) {
	get := start(t, "postgres://nobody@127.0.0.1:1/none") // connections are opened when they are needed
	if got := get("/plaintext", "text/plain; charset=utf-8"); got != "Hello, World!" {
		t.Errorf("the text is %q", got)
	}
	if got := get("/json", "application/json"); got != `{"message":"Hello, World!"}` {
		t.Errorf("the JSON is %s", got)
	}
}

// testDatabase makes a schema in the database of DATABASE_URL. It returns a connection, and a URL for the schema.
func testDatabase(t *testing.T, tables string) (*pgx.Conn, string) {
	database := os.Getenv("DATABASE_URL")
	if database == "" {
		t.Skip("DATABASE_URL is not set: this test needs a PostgreSQL server")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("filo_test_%d", os.Getpid())
	t.Cleanup(func() {
		if _, err := conn.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		conn.Close(ctx)
	})
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+schema+"; SET search_path TO "+schema+"; "+tables); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return conn, u.String()
}

func TestDatabase(t *testing.T) {
	conn, database := testDatabase(t, `CREATE TABLE world (id int PRIMARY KEY, randomnumber int NOT NULL);
		INSERT INTO world SELECT n, n FROM generate_series(1, 10000) AS n;
		CREATE TABLE fortune (id int PRIMARY KEY, message text NOT NULL);
		INSERT INTO fortune VALUES (1, 'Zero or one'), (2, '<script>')`)
	get := start(t, database)
	var one world
	if err := json.Unmarshal([]byte(get("/db", "application/json")), &one); err != nil || one.ID < 1 || one.RandomNumber != one.ID {
		t.Errorf("the row is %+v, %v", one, err)
	}
	for number, want := range map[string]int{"2": 2, "0": 1, "x": 1, "": 1, "501": 500} {
		for _, path := range []string{"/queries", "/cached-worlds", "/cached-worlds"} {
			var worlds []world
			if err := json.Unmarshal([]byte(get(path+"?queries="+number, "application/json")), &worlds); err != nil || len(worlds) != want {
				t.Errorf("%s of %q: %d rows, %v", path, number, len(worlds), err)
			}
			for _, each := range worlds {
				if each.ID < 1 || each.RandomNumber != each.ID {
					t.Errorf("%s of %q: the row %+v", path, number, each)
				}
			}
		}
	}
	var updated []world
	if err := json.Unmarshal([]byte(get("/updates?queries=20", "application/json")), &updated); err != nil || len(updated) != 20 {
		t.Errorf("%d rows were updated, %v", len(updated), err)
	}
	for _, each := range updated {
		var number int32
		if err := conn.QueryRow(context.Background(), "SELECT randomnumber FROM world WHERE id = $1", each.ID).Scan(&number); err != nil ||
			number != each.RandomNumber || number == each.ID {
			t.Errorf("the row %+v has the number %d, %v", each, number, err)
		}
	}
	want := "<tr><td>2</td><td>&lt;script&gt;</td></tr>\n<tr><td>0</td><td>Additional fortune added at request time.</td></tr>\n" +
		"<tr><td>1</td><td>Zero or one</td></tr>\n</table>"
	if got := get("/fortunes", "text/html; charset=utf-8"); !strings.Contains(got, want) {
		t.Errorf("the fortunes are %s", got)
	}
}
