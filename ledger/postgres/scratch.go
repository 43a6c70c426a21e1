package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// scratch is the room in which a connection writes its statements, again for each: first their lists, and then the message with
// all of it. pgx makes both anew, and lets them grow from a few hundred bytes.
type scratch struct {
	// lists are dead when those of the next statement are written: pgx has copied them into its message by then.
	lists []byte
	// message is pgx's until it was sent, which is before its connection is acquired again.
	message []byte
}

const (
	// scratchSize bounds what a connection keeps of lists, in bytes. Its message has as much.
	scratchSize = 256 << 10
	// messageRoom is what a message has besides lists.
	messageRoom = 4 << 10
	// scratchData is the name of a connection's scratch among its data.
	scratchData = "paidonce scratch"
)

// withScratch gives a new connection a scratch.
func withScratch(_ context.Context, c *pgx.Conn) error {
	s := &scratch{}
	s.knowLists(c.TypeMap())
	c.PgConn().CustomData()[scratchData] = s
	return nil
}

// giveRoom readies a connection that is acquired.
func giveRoom(c *pgx.Conn) {
	if s, ok := c.PgConn().CustomData()[scratchData].(*scratch); ok {
		c.PgConn().Frontend().Send(enlarge{scratch: s})
	}
}

// knowLists has a connection write lists itself. Nobody else's arguments are lists, so the user's are written as before.
func (s *scratch) knowLists(m *pgtype.Map) {
	m.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{s.listPlan}, m.TryWrapEncodePlanFuncs...)
}

// begin is buf with room for lists.
func (s *scratch) begin(buf []byte) []byte { return roomier(buf, s.lists) }

// keep keeps the room of buf, which may have grown.
func (s *scratch) keep(buf []byte) {
	if cap(buf) > cap(s.lists) && cap(buf) <= scratchSize {
		s.lists = buf[:0]
	}
}

// enlarge is a message of no bytes, after which pgx has the room for the next.
type enlarge struct {
	pgproto3.FrontendMessage // nil: it is for sending alone
	*scratch
}

// Encode implements pgproto3.FrontendMessage.
func (e enlarge) Encode(dst []byte) ([]byte, error) {
	if want := cap(e.lists) + messageRoom; e.lists != nil && cap(e.message) < want {
		e.message = make([]byte, 0, want)
	}
	return roomier(dst, e.message), nil
}

// roomier is buf in room, if that is larger than its own.
func roomier(buf, room []byte) []byte {
	if cap(buf) >= cap(room) { // it may be that room already
		return buf
	}
	return append(room[:0], buf...)
}
