package postgres

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/internal/pgtest"
)

func sameRoom(a, b []byte) bool { return &a[:1][0] == &b[:1][0] }

// TestScratch: all lists are written to one room, the arguments of a statement after each other and those of the next from its beginning, and
// what is too large is not kept.
func TestScratch(t *testing.T) {
	m := pgtype.NewMap()
	new(scratch).knowLists(m)
	encode := func(c listCase, buf []byte) []byte {
		got, err := m.Encode(c.array, pgtype.BinaryFormatCode, c.list, buf)
		if err != nil {
			t.Fatal(c.name, err)
		}
		return got
	}
	sized := func(n int) listCase { return listOf("of a size", pgtype.TextArrayOID, string(make([]byte, n))) }
	room := encode(sized(200_000), nil)
	for _, c := range listCases() {
		for name, buf := range map[string][]byte{"no room": nil, "room of its own": make([]byte, 0, 256), "an argument before": make([]byte, 8, 256)} {
			if first := encode(c, buf); !sameRoom(first, room) || !sameRoom(encode(c, first), room) {
				t.Errorf("%s, with %s: they are not in the scratch", c.name, name)
			}
		}
	}
	if large := encode(sized(scratchSize), nil); sameRoom(large, room) || !sameRoom(encode(sized(10), nil), room) {
		t.Error("what is larger than the scratch is kept")
	}
}

// wire remembers what was written to it, and from where.
type wire struct {
	bytes.Buffer
	last []byte
}

func (w *wire) Write(p []byte) (int, error) {
	w.last = p
	return w.Buffer.Write(p)
}

// TestEnlarge: messages are what they were, each statement's is written from the same room, and one that has no room there is written all the same.
func TestEnlarge(t *testing.T) {
	var with, without wire
	s := &scratch{lists: make([]byte, 0, 10_000)}
	f, plain := pgproto3.NewFrontend(nil, &with), pgproto3.NewFrontend(nil, &without)
	for i, n := range []int{9000, 5, 9000, 5, 5, 100_000, 9000} {
		for _, f := range []*pgproto3.Frontend{f, plain} {
			f.Send(&pgproto3.Query{String: "a lock before"})
			if f != plain {
				f.Send(enlarge{scratch: s})
			}
			f.SendBind(&pgproto3.Bind{PreparedStatement: "p", Parameters: [][]byte{bytes.Repeat([]byte{byte(i)}, n)}})
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if own := sameRoom(with.last, s.message); own != (n < 100_000) {
			t.Errorf("message %d of %d bytes is written from the scratch: %t", i, n, own)
		}
	}
	if !bytes.Equal(with.Bytes(), without.Bytes()) {
		t.Error("other messages are sent with the scratch than without")
	}
	if cap(s.message) < 10_000+messageRoom || cap(s.message) > 20_000 {
		t.Errorf("a message has room for %d bytes", cap(s.message))
	}
}

// TestScratchInUse: the ledger's connections have a scratch, directly and through a pooler, and answer as before.
func TestScratchInUse(t *testing.T) {
	for name, s := range map[string]server{"direct": {}, "pooled": {pooled: true, isolation: "read committed"}} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.URL(t)
			cfg, err := pgxpool.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			if err := configure(cfg, url, Options{MaxConns: 1}, s); err != nil {
				t.Fatal(err)
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			for _, size := range []int{10, 100_000, 10, 300_000, 100_000} {
				got, err := one[struct{ Sum int64 }](t.Context(), pool, "select sum(length(v)) as sum from unnest($1::text[]) v",
					list[string]{strings.Repeat("a", size), "", strings.Repeat("b", size)})
				if err != nil || got.Sum != int64(2*size) {
					t.Errorf("of 2 texts of %d: %d, %v", size, got.Sum, err)
				}
			}
			c, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Release()
			if s := c.Conn().PgConn().CustomData()[scratchData].(*scratch); cap(s.lists) < 200_000 || cap(s.message) < cap(s.lists) {
				t.Errorf("the scratch has room for %d bytes of lists and %d of a message", cap(s.lists), cap(s.message))
			}
		})
	}
}
