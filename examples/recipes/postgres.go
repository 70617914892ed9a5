package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// User is a row of the table users:
//
//	CREATE TABLE users (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text NOT NULL UNIQUE);
type User struct {
	ID    int64  `json:"id"`
	Email string `json:"email"`
}

// Users is the part of the service that uses the table users.
type Users struct{ Pool *pgxpool.Pool }

// OpenUsers connects to PostgreSQL. Its pool holds ten connections for each processor of the database's machine: more connections make the database
// slower, not faster. Further requests wait for a connection in the pool, and occupy filo's workers meanwhile, which costs little.
func OpenUsers(ctx context.Context, url string, processors int32) (*Users, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 10 * processors
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return &Users{pool}, nil
}

// Routes registers the handlers. Close the pool after Server.Run has returned, when no handler runs any more.
func (u *Users) Routes(r *router.Router) {
	r.GET("/users", u.list)
	r.GET("/users/{id:int}", u.show)
	r.POST("/users", u.create)
}

// list answers with a page. The query has the request's context, so it is cancelled when the client leaves.
func (u *Users) list(c *filo.Ctx) error {
	page, err := PageOf(c)
	if err != nil {
		return err
	}
	rows, err := u.Pool.Query(c.Context(), `SELECT id, email FROM users WHERE id > $1 ORDER BY id LIMIT $2`, page.After, page.Size+1)
	if err != nil {
		return err
	}
	users, err := pgx.CollectRows(rows, pgx.RowToStructByPos[User])
	if err != nil {
		return err
	}
	if len(users) > page.Size {
		users = users[:page.Size]
		page.SetNext(c, users[page.Size-1].ID)
	}
	if users == nil {
		users = []User{} // [] and not null
	}
	return c.JSON(200, users)
}

func (u *Users) show(c *filo.Ctx) error {
	rows, err := u.Pool.Query(c.Context(), `SELECT id, email FROM users WHERE id = $1`, c.Param("id"))
	if err != nil {
		return err
	}
	user, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[User])
	if errors.Is(err, pgx.ErrNoRows) {
		return filo.Error(404, "there is no such user")
	}
	if err != nil {
		return err
	}
	return c.JSON(200, user)
}

func (u *Users) create(c *filo.Ctx) error {
	var in User
	if err := bind.JSON(c, &in); err != nil {
		return err
	}
	if in.Email == "" {
		return filo.Error(422, "email is required")
	}
	err := u.Pool.QueryRow(c.Context(), `INSERT INTO users (email) VALUES ($1) RETURNING id`, in.Email).Scan(&in.ID)
	if constraint, ok := errors.AsType[*pgconn.PgError](err); ok && constraint.Code == "23505" { // unique_violation
		return filo.Error(409, "this address has an account already")
	}
	if err != nil {
		return err
	}
	return c.JSON(201, in)
}
