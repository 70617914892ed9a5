package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// cacheSize and cacheTime are how many single items are remembered, and for how long.
	cacheSize = 1 << 17
	cacheTime = 200 * time.Millisecond
)

const columns = "id, name, category, price, quantity, active, tags, rating_score, rating_count"

// database is the benchmark's table of items. pool is nil if there is none.
type database struct {
	pool  *pgxpool.Pool
	cache *expirable.LRU[int, item]
}

// openDatabase prepares up to most connections, which are opened when they are needed.
func openDatabase(ctx context.Context, url, most string) (*database, error) {
	d := &database{cache: expirable.NewLRU[int, item](cacheSize, nil, cacheTime)}
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

// query returns the items that a query has found.
func (d *database) query(ctx context.Context, sql string, arguments ...any) ([]item, error) {
	if d.pool == nil {
		return nil, errNoDatabase
	}
	rows, err := d.pool.Query(ctx, "SELECT "+columns+" FROM items "+sql, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (i item, err error) {
		err = row.Scan(&i.ID, &i.Name, &i.Category, &i.Price, &i.Quantity, &i.Active, &i.Tags, &i.Rating.Score, &i.Rating.Count)
		return i, err
	})
}

// inRange answers with items of a range of prices. Without a database there are none.
func (d *database) inRange(c *filo.Ctx) error {
	in := struct {
		Min   int `query:"min"`
		Max   int `query:"max"`
		Limit int `query:"limit"`
	}{10, 50, 50}
	if err := bind.Query(c, &in); err != nil {
		return err
	}
	items, err := d.query(c.Context(), "WHERE price BETWEEN $1 AND $2 LIMIT $3", in.Min, in.Max, min(max(in.Limit, 1), 50))
	if err != nil {
		c.Logger().Error("no items", "error", err)
		items = []item{}
	}
	return answerWith(c, items)
}

// list answers with a page of the items of a category.
func (d *database) list(c *filo.Ctx) error {
	in := struct {
		Category string `query:"category"`
		Page     int    `query:"page"`
		Limit    int    `query:"limit"`
	}{"electronics", 1, 10}
	if err := bind.Query(c, &in); err != nil {
		return err
	}
	in.Page, in.Limit = max(in.Page, 1), min(max(in.Limit, 1), 50)
	items, err := d.query(c.Context(), "WHERE category = $1 ORDER BY id LIMIT $2 OFFSET $3", in.Category, in.Limit, (in.Page-1)*in.Limit)
	if err != nil {
		return err
	}
	return c.JSON(200, struct {
		Items []item `json:"items"`
		Total int    `json:"total"`
		Page  int    `json:"page"`
		Limit int    `json:"limit"`
	}{items, len(items), in.Page, in.Limit})
}

// get answers with an item, from the cache if it is there.
func (d *database) get(c *filo.Ctx) error {
	id, err := strconv.Atoi(c.Param("id"))
	if err != nil {
		return filo.Error(404, "")
	}
	if found, ok := d.cache.Get(id); ok {
		c.Response.Header.Set("X-Cache", "HIT")
		return c.JSON(200, found)
	}
	items, err := d.query(c.Context(), "WHERE id = $1", id)
	switch {
	case err != nil:
		return err
	case len(items) == 0:
		return filo.Error(404, "")
	}
	d.cache.Add(id, items[0])
	c.Response.Header.Set("X-Cache", "MISS")
	return c.JSON(200, items[0])
}

// create adds an item, or replaces that with the same ID.
func (d *database) create(c *filo.Ctx) error {
	var in item
	if err := bind.JSON(c, &in); err != nil {
		return err
	}
	if in.Tags == nil {
		in.Tags = []string{}
	}
	if d.pool == nil {
		return errNoDatabase
	}
	_, err := d.pool.Exec(c.Context(), "INSERT INTO items ("+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE
		SET name = $2, category = $3, price = $4, quantity = $5, active = $6, tags = $7, rating_score = $8, rating_count = $9`,
		in.ID, in.Name, in.Category, in.Price, in.Quantity, in.Active, in.Tags, in.Rating.Score, in.Rating.Count)
	if err != nil {
		return err
	}
	d.cache.Remove(in.ID)
	return c.JSON(201, in)
}

// change changes an item's name, price and quantity.
func (d *database) change(c *filo.Ctx) error {
	var in struct {
		ID       int    `json:"id" path:"id"`
		Name     string `json:"name"`
		Price    int    `json:"price"`
		Quantity int    `json:"quantity"`
	}
	if err := bind.All(c, &in); err != nil {
		return err
	}
	if d.pool == nil {
		return errNoDatabase
	}
	err := d.pool.QueryRow(c.Context(), "UPDATE items SET name = $2, price = $3, quantity = $4 WHERE id = $1 RETURNING id",
		in.ID, in.Name, in.Price, in.Quantity).Scan(&in.ID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return filo.Error(404, "")
	case err != nil:
		return err
	}
	d.cache.Remove(in.ID)
	return c.JSON(200, in)
}
