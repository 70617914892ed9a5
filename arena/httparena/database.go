package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const columns = "id, name, category, price, quantity, active, tags, rating_score, rating_count"

// database gives access to the benchmark's tables. pool is nil if there is no database.
type database struct{ pool *pgxpool.Pool }

// openDatabase prepares a pool of connections, which are opened when they are first needed. The parameter most is the maximum number of connections.
func openDatabase(ctx context.Context, url, most string) (*database, error) {
	d := new(database)
	if url == "" {
		return d, nil
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if most != "" {
		n, err := strconv.ParseInt(most, 10, 32)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("DATABASE_MAX_CONN is %q", most)
		}
		config.MaxConns = int32(n)
	}
	d.pool, err = pgxpool.NewWithConfig(ctx, config)
	return d, err
}

func (d *database) close() {
	if d.pool != nil {
		d.pool.Close()
	}
}

var errNoDatabase = filo.Error(503, "there is no database")

// inRange answers with the items in a range of prices, or with none if there is no database.
func (d *database) inRange(c *filo.Ctx) error {
	in := struct {
		Min   int `query:"min"`
		Max   int `query:"max"`
		Limit int `query:"limit"`
	}{10, 50, 50}
	if err := bind.Query(c, &in); err != nil {
		return err
	}
	items, err := query(c.Context(), d, func(row pgx.CollectableRow) (i item, err error) {
		err = row.Scan(&i.ID, &i.Name, &i.Category, &i.Price, &i.Quantity, &i.Active, &i.Tags, &i.Rating.Score, &i.Rating.Count)
		return i, err
	}, "SELECT "+columns+" FROM items WHERE price BETWEEN $1 AND $2 LIMIT $3", in.Min, in.Max, min(max(in.Limit, 1), 50))
	if err != nil {
		c.Logger().Error("no items", "error", err)
		items = []item{}
	}
	return answerWith(c, items)
}

// query runs a query and returns its rows.
func query[T any](ctx context.Context, d *database, scan pgx.RowToFunc[T], sql string, arguments ...any) ([]T, error) {
	if d.pool == nil {
		return nil, errNoDatabase
	}
	rows, err := d.pool.Query(ctx, sql, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// fortune is a row of the table fortune.
type fortune struct {
	ID      int
	Message string
}

// fortunes answers with a page of all fortunes in the table, and one that is added for this request.
func (d *database) fortunes(c *filo.Ctx) error {
	all, err := query(c.Context(), d, pgx.RowToStructByPos[fortune], "SELECT id, message FROM fortune")
	if err != nil {
		return err
	}
	all = append(all, fortune{Message: "Additional fortune added at request time."})
	slices.SortFunc(all, func(a, b fortune) int { return strings.Compare(a.Message, b.Message) })
	return c.Render(200, "fortunes.html", all)
}
