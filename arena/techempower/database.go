package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// worldCount is the number of rows in the table world.
const worldCount = 10000

type world struct {
	ID           int32 `json:"id"`
	RandomNumber int32 `json:"randomNumber"`
}

type fortune struct {
	ID      int32
	Message string
}

// database is the benchmark's database, and a cache of its worlds.
type database struct {
	pool  *pgxpool.Pool
	cache *lru.Cache[int32, world]
}

// openDatabase prepares connections: four for each processor, or more if the URL's pool_max_conns says so. They are opened when they are
// needed.
func openDatabase(ctx context.Context, url string) (*database, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = max(config.MaxConns, int32(4*runtime.GOMAXPROCS(0)))
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	cache, err := lru.New[int32, world](worldCount)
	return &database{pool, cache}, err
}

// randomIDs returns n different IDs of worlds, in their order. Requests that update the same rows in one order can't wait for each other in
// a circle.
func randomIDs(n int) []int32 {
	ids := make([]int32, 0, n)
	for len(ids) < n {
		id := randomNumber()
		if at, found := slices.BinarySearch(ids, id); !found {
			ids = slices.Insert(ids, at, id)
		}
	}
	return ids
}

func randomNumber() int32 { return rand.Int32N(worldCount) + 1 }

// worlds reads the worlds, by a query for each.
func (d *database) worlds(ctx context.Context, ids []int32) ([]world, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	return read(ctx, conn, ids)
}

func read(ctx context.Context, conn *pgxpool.Conn, ids []int32) ([]world, error) {
	worlds := make([]world, len(ids))
	for i, id := range ids {
		row := conn.QueryRow(ctx, "SELECT id, randomnumber FROM world WHERE id = $1", id)
		if err := row.Scan(&worlds[i].ID, &worlds[i].RandomNumber); err != nil {
			return nil, err
		}
	}
	return worlds, nil
}

// update reads the worlds, gives each a new number, and writes them by one statement.
func (d *database) update(ctx context.Context, ids []int32) ([]world, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	worlds, err := read(ctx, conn, ids)
	if err != nil {
		return nil, err
	}
	numbers := make([]int32, len(worlds))
	for i := range worlds {
		for old := worlds[i].RandomNumber; worlds[i].RandomNumber == old; {
			worlds[i].RandomNumber = randomNumber()
		}
		numbers[i] = worlds[i].RandomNumber
	}
	_, err = conn.Exec(ctx, `UPDATE world SET randomnumber = new.number
		FROM unnest($1::int[], $2::int[]) AS new (id, number) WHERE world.id = new.id`, ids, numbers)
	return worlds, err
}

// cached is worlds by the cache, which gets what it lacks.
func (d *database) cached(ctx context.Context, ids []int32) ([]world, error) {
	worlds := make([]world, len(ids))
	for i, id := range ids {
		cached, ok := d.cache.Get(id)
		if !ok {
			read, err := d.worlds(ctx, ids[i:i+1])
			if err != nil {
				return nil, err
			}
			cached = read[0]
			d.cache.Add(id, cached)
		}
		worlds[i] = cached
	}
	return worlds, nil
}

func (d *database) fortunes(ctx context.Context) ([]fortune, error) {
	rows, err := d.pool.Query(ctx, "SELECT id, message FROM fortune")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[fortune])
}
