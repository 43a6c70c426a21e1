package postgres

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/paidonce/paidonce/ledger"
)

// listCase is a list and the array that it is an argument for.
type listCase struct {
	name  string
	array uint32
	list  any
	slice any
}

func listOf[T any](name string, array uint32, values ...T) listCase {
	values = append([]T{}, values...) // none is no null
	return listCase{name, array, list[T](values), values}
}

func listCases() []listCase {
	at, ns := time.Date(1999, 12, 31, 23, 59, 59, 999_999_999, time.FixedZone("", 3600)), -1500*time.Nanosecond
	hour, n, big, cost, text := time.Hour, -7, int64(math.MinInt64), ledger.Nano(math.MaxInt64), "höhe"
	return []listCase{
		listOf[string]("no texts", pgtype.TextArrayOID),
		listOf("texts", pgtype.TextArrayOID, "", "a", "NULL", `{"ä,\`, string(make([]byte, 70_000))),
		listOf("texts or null", pgtype.TextArrayOID, &text, nil, new(string)),
		listOf("no text but null", pgtype.TextArrayOID, (*string)(nil)),
		listOf("bytes or null", pgtype.ByteaArrayOID, []byte("a\x00"), nil, []byte{}),
		listOf("uuids", pgtype.UUIDArrayOID, [16]byte{1, 15: 2}, [16]byte{}),
		listOf("ints", pgtype.Int4ArrayOID, 0, math.MaxInt32, math.MinInt32),
		listOf("ints or null", pgtype.Int4ArrayOID, nil, &n),
		listOf("bigints", pgtype.Int8ArrayOID, int64(math.MaxInt64), -1, big),
		listOf("bigints or null", pgtype.Int8ArrayOID, nil, &big),
		listOf("costs", pgtype.Int8ArrayOID, cost, -cost),
		listOf("costs or null", pgtype.Int8ArrayOID, &cost, nil),
		listOf("durations", pgtype.IntervalArrayOID, 0, hour, -hour, ns),
		listOf("durations or null", pgtype.IntervalArrayOID, nil, &hour),
		listOf("times or null", pgtype.TimestamptzArrayOID, &at, nil),
	}
}

// TestLists: a list is written as pgx writes its slice, on a connection that knows lists and on another.
func TestLists(t *testing.T) {
	known, plain := pgtype.NewMap(), pgtype.NewMap()
	knowLists(known)
	for range 2 { // in room that is new, and again in it
		for _, c := range listCases() {
			want, err := plain.Encode(c.array, pgtype.BinaryFormatCode, c.slice, []byte(c.name))
			if err != nil {
				t.Fatal(c.name, err)
			}
			for which, m := range map[string]*pgtype.Map{"known": known, "unknown": plain} {
				got, err := m.Encode(c.array, pgtype.BinaryFormatCode, c.list, []byte(c.name))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s, %s: %v\n got %.100x\nwant %.100x", c.name, which, err, got, want)
				}
			}
		}
	}
}

// TestListsAsPgx: what is not the array of a list's own elements, in binary form, pgx writes or refuses as it would the slice.
func TestListsAsPgx(t *testing.T) {
	known, plain := pgtype.NewMap(), pgtype.NewMap()
	knowLists(known)
	for _, c := range append(listCases(), listOf("too large an int", pgtype.Int4ArrayOID, 1, math.MaxInt32+1),
		listOf("of no list's type", pgtype.Float8ArrayOID, 1.5, -1)) {
		for _, array := range []uint32{c.array, pgtype.TextArrayOID, pgtype.VarcharArrayOID, pgtype.NumericArrayOID, pgtype.Int8ArrayOID, pgtype.TextOID} {
			for _, format := range []int16{pgtype.TextFormatCode, pgtype.BinaryFormatCode} {
				want, refused := plain.Encode(array, format, c.slice, nil)
				got, err := known.Encode(array, format, c.list, nil)
				if !bytes.Equal(got, want) || (err == nil) != (refused == nil) {
					t.Errorf("%s for type %d in format %d: %.100x, %v\nwant %.100x, %v", c.name, array, format, got, err, want, refused)
				}
			}
		}
	}
}

// TestScratch: all lists are written to one room, the arguments of a statement after each other and those of the next from its beginning, and
// what is too large is not kept.
func TestScratch(t *testing.T) {
	m := pgtype.NewMap()
	knowLists(m)
	encode := func(c listCase, buf []byte) []byte {
		got, err := m.Encode(c.array, pgtype.BinaryFormatCode, c.list, buf)
		if err != nil {
			t.Fatal(c.name, err)
		}
		return got
	}
	sized := func(n int) listCase { return listOf("of a size", pgtype.TextArrayOID, string(make([]byte, n))) }
	same := func(a, b []byte) bool { return &a[:1][0] == &b[:1][0] }
	room := encode(sized(200_000), nil)
	for _, c := range listCases() {
		for name, buf := range map[string][]byte{"no room": nil, "room of its own": make([]byte, 0, 256), "an argument before": make([]byte, 8, 256)} {
			if first := encode(c, buf); !same(first, room) || !same(encode(c, first), room) {
				t.Errorf("%s, with %s: they are not in the scratch", c.name, name)
			}
		}
	}
	if large := encode(sized(scratchSize), nil); same(large, room) || !same(encode(sized(10), nil), room) {
		t.Error("what is larger than the scratch is kept")
	}
}
