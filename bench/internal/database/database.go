// Package database holds the table, the pool and the query that all servers of the comparison share.
package database

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Rows is the number of rows in the table, and MaxConns the number of connections to PostgreSQL for each server.
const (
	Rows     = 10_000
	MaxConns = 8
)

// Product is a row of the table.
type Product struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Stock int    `json:"stock"`
}

// Stored returns the row with that ID, which is from 1 to Rows.
func Stored(id int) Product {
	return Product{id, "Product " + strconv.Itoa(id), id * 37 % 1000}
}

// JSON encodes the product with encoding/json.
func (p Product) JSON() []byte {
	b, _ := json.Marshal(p) // a Product always encodes
	return b
}

// Fill creates the table, with the rows that Stored returns.
func Fill(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "CREATE TABLE products (id integer PRIMARY KEY, name text NOT NULL, stock integer NOT NULL)")
	if err != nil {
		return err
	}
	row := func(i int) ([]any, error) {
		p := Stored(i + 1)
		return []any{p.ID, p.Name, p.Stock}, nil
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"products"}, []string{"id", "name", "stock"}, pgx.CopyFromSlice(Rows, row))
	if err != nil {
		return err
	}
	// After COPY, the first query that reads a row sets its hint bits. VACUUM sets them now, so that no measured query does.
	_, err = conn.Exec(ctx, "VACUUM ANALYZE products")
	return err
}

// Pool is a server's connections to PostgreSQL. A nil Pool has none.
type Pool struct{ pool *pgxpool.Pool }

// Open opens a pool with the connection string of -database. It returns nil if the string is empty. Open opens all connections, and makes one query
// on each. Opening them under load would delay requests for most of the warm-up, and also some of the measured requests.
func Open(ctx context.Context, connString string) (*Pool, error) {
	if connString == "" {
		return nil, nil
	}
	config, err := pgxpool.ParseConfig(connString)
	if err != nil {
		return nil, err
	}
	config.MaxConns = MaxConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := openAll(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return &Pool{pool}, nil
}

func openAll(ctx context.Context, pool *pgxpool.Pool) error {
	for range MaxConns {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // not earlier: while a connection is acquired, Acquire returns another one
		if _, err := read(ctx, conn, 1); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the connections.
func (p *Pool) Close() { p.pool.Close() }

// read reads a row from the table, with a connection or a pool.
func read(ctx context.Context, from interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id int) (p Product, err error) {
	row := from.QueryRow(ctx, "SELECT id, name, stock FROM products WHERE id = $1", id)
	err = row.Scan(&p.ID, &p.Name, &p.Stock)
	return p, err
}

// Product reads the row with that ID and returns it as JSON.
func (p *Pool) Product(ctx context.Context, id string) ([]byte, error) {
	if p == nil {
		return nil, errors.New("the server was started without -database")
	}
	n, err := strconv.Atoi(id)
	if err != nil {
		return nil, err
	}
	found, err := read(ctx, p.pool, n)
	if err != nil {
		return nil, err
	}
	return found.JSON(), nil
}
