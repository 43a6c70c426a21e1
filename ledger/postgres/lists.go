package postgres

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/paidonce/paidonce/ledger"
)

// list is an argument of a statement for many, an array. On connections that know lists it is written
// in one loop, where pgx would look at each element as a value of any type.
type list[T any] []T

// column is one argument of a statement for many.
func column[A, T any](asks []A, of func(A) T) list[T] {
	c := make(list[T], len(asks))
	for i, a := range asks {
		c[i] = of(a)
	}
	return c
}

// knowLists has a connection write lists itself. Nobody else's arguments are lists, so the user's are written as before.
func knowLists(m *pgtype.Map) {
	var s scratch
	m.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{s.listPlan}, m.TryWrapEncodePlanFuncs...)
}

// listPlan is how a list is written, with the slice that pgx would write for it; false: it is none, or of another type.
func (s *scratch) listPlan(value any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
	switch v := value.(type) {
	case list[string]:
		return &packer[string]{of: pgtype.TextOID, put: putText, scratch: s}, []string(v), true
	case list[*string]:
		return &packer[*string]{of: pgtype.TextOID, put: orNull(putText), scratch: s}, []*string(v), true
	case list[[]byte]:
		return &packer[[]byte]{of: pgtype.ByteaOID, put: putBytes, scratch: s}, [][]byte(v), true
	case list[[16]byte]:
		return &packer[[16]byte]{of: pgtype.UUIDOID, put: putUUID, scratch: s}, [][16]byte(v), true
	case list[int]:
		return &packer[int]{of: pgtype.Int4OID, put: putInt4, scratch: s}, []int(v), true
	case list[*int]:
		return &packer[*int]{of: pgtype.Int4OID, put: orNull(putInt4), scratch: s}, []*int(v), true
	case list[int64]:
		return &packer[int64]{of: pgtype.Int8OID, put: putInt8[int64], scratch: s}, []int64(v), true
	case list[*int64]:
		return &packer[*int64]{of: pgtype.Int8OID, put: orNull(putInt8[int64]), scratch: s}, []*int64(v), true
	case list[ledger.Nano]:
		return &packer[ledger.Nano]{of: pgtype.Int8OID, put: putInt8[ledger.Nano], scratch: s}, []ledger.Nano(v), true
	case list[*ledger.Nano]:
		return &packer[*ledger.Nano]{of: pgtype.Int8OID, put: orNull(putInt8[ledger.Nano]), scratch: s}, []*ledger.Nano(v), true
	case list[time.Duration]:
		return &packer[time.Duration]{of: pgtype.IntervalOID, put: putInterval, scratch: s}, []time.Duration(v), true
	case list[*time.Duration]:
		return &packer[*time.Duration]{of: pgtype.IntervalOID, put: orNull(putInterval), scratch: s}, []*time.Duration(v), true
	case list[*time.Time]:
		return &packer[*time.Time]{of: pgtype.TimestamptzOID, put: orNull(putTime), scratch: s}, []*time.Time(v), true
	}
	return nil, nil, false
}

// scratch is what a connection writes its lists to, again for each statement: pgx makes room of that size anew. It has
// copied the arguments of a statement into its message before those of the next are written.
type scratch struct{ room []byte }

// scratchSize bounds what a connection keeps, in bytes.
const scratchSize = 256 << 10

// begin is buf with the scratch's room.
func (s *scratch) begin(buf []byte) []byte {
	if cap(buf) >= cap(s.room) { // it is the scratch, or larger
		return buf
	}
	return append(s.room[:0], buf...)
}

// keep keeps the room of buf, which may have grown.
func (s *scratch) keep(buf []byte) {
	if cap(buf) > cap(s.room) && cap(buf) <= scratchSize {
		s.room = buf[:0]
	}
}

// packer writes a list in Postgres' binary form, byte for byte as pgx does.
type packer[T any] struct {
	of uint32 // the type of what put writes
	// put appends an element; nil: it is null.
	put func([]byte, T) ([]byte, error)
	*scratch

	fits bool // the array that is wanted is binary, and of such elements
	next pgtype.EncodePlan
}

// SetNext implements pgtype.WrappedEncodePlanNextSetter.
func (p *packer[T]) SetNext(next pgtype.EncodePlan) {
	empty, err := next.Encode([]T{}, nil)
	p.next, p.fits = next, err == nil && bytes.Equal(empty, arrayHead(nil, p.of, 0))
}

// arrayHead appends what an array of n elements and one dimension begins with. That none is null is so until somebody says otherwise.
func arrayHead(buf []byte, of uint32, n int) []byte {
	const dimensions, nulls, first = 1, 0, 1
	for _, v := range [...]uint32{dimensions, nulls, of, uint32(n), first} {
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	return buf
}

// Encode implements pgtype.EncodePlan.
func (p *packer[T]) Encode(value any, buf []byte) ([]byte, error) {
	values := value.(list[T])
	if !p.fits {
		return p.next.Encode([]T(values), buf)
	}
	begun := len(buf)
	buf = arrayHead(p.begin(buf), p.of, len(values))
	for _, v := range values {
		buf = append(buf, 0xff, 0xff, 0xff, 0xff) // its size: null
		from := len(buf)
		put, err := p.put(buf, v)
		switch {
		case err != nil:
			return nil, err
		case put == nil:
			buf[begun+7] = 1 // there are nulls
		default:
			buf = put
			binary.BigEndian.PutUint32(buf[from-4:], uint32(len(buf)-from))
		}
	}
	p.keep(buf)
	return buf, nil
}

func orNull[T any](put func([]byte, T) ([]byte, error)) func([]byte, *T) ([]byte, error) {
	return func(buf []byte, v *T) ([]byte, error) {
		if v == nil {
			return nil, nil
		}
		return put(buf, *v)
	}
}

func putText(buf []byte, v string) ([]byte, error) { return append(buf, v...), nil }

func putUUID(buf []byte, v [16]byte) ([]byte, error) { return append(buf, v[:]...), nil }

func putBytes(buf, v []byte) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return append(buf, v...), nil
}

func putInt4(buf []byte, v int) ([]byte, error) {
	if v < math.MinInt32 || v > math.MaxInt32 {
		return nil, fmt.Errorf("%d is beyond an integer of 4 bytes", v)
	}
	return binary.BigEndian.AppendUint32(buf, uint32(v)), nil
}

func putInt8[T ~int64](buf []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(buf, uint64(v)), nil
}

// putInterval appends microseconds, no days and no months.
func putInterval(buf []byte, v time.Duration) ([]byte, error) {
	return append(binary.BigEndian.AppendUint64(buf, uint64(v.Microseconds())), 0, 0, 0, 0, 0, 0, 0, 0), nil
}

// epoch is where Postgres' time begins, in microseconds.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func putTime(buf []byte, v time.Time) ([]byte, error) {
	return binary.BigEndian.AppendUint64(buf, uint64(v.UnixMicro()-epoch)), nil
}
