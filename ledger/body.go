package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// How large bodies may be, in bytes: results, captured answers and inputs.
const (
	// MaxBody is the largest body that a ledger keeps. Complete and Settle refuse a larger one with
	// ErrTooLarge; of a larger input nothing is kept.
	MaxBody = 64 << 20
	// InlineBody is the largest result or answer that its row holds itself, and the size of the
	// chunks of a larger one.
	InlineBody = 256 << 10
	// InlineInput is the largest input that is kept by the statement that makes its job. A larger one
	// is kept, in chunks, by what follows a claim that is told Run.
	InlineInput = 64 << 10
	// WrapRoom is the most that whoever wraps a body on its way to the ledger may add to it, as
	// encryption does.
	WrapRoom = 1 << 10
)

// mark begins a reference. No text does.
var mark = []byte("\x00POBODY\x01")

// referenceSize is that of what a row holds in place of a body that lies in chunks: the mark, the body's
// size in 8 bytes, big-endian, and its SHA-256.
const referenceSize = 8 + 8 + sha256.Size

// Split says how a body is stored: in its row, if it has at most inline bytes, or in chunks
// of InlineBody bytes that a reference in the row names by their hash. A chunk is kept under the
// body's job, that hash and its number, from 0: the same body is the same chunks, whoever writes
// them and how often. Chunks are written before the row that names them; those that no row names,
// because the verb was refused then, go with the other bodies of their job.
//
// row and chunks share memory with body. row is never nil.
func Split(body []byte, inline int) (row []byte, chunks [][]byte) {
	if body == nil {
		return []byte{}, nil
	}
	if inRow(body, inline) {
		return body, nil
	}
	sum := sha256.Sum256(body)
	row = append(binary.BigEndian.AppendUint64(bytes.Clone(mark), uint64(len(body))), sum[:]...)
	for len(body) > InlineBody {
		chunks, body = append(chunks, body[:InlineBody]), body[InlineBody:]
	}
	return row, append(chunks, body)
}

// inRow reports whether a row holds the body itself: one that looks like a reference it does not.
func inRow(body []byte, inline int) bool {
	_, looksLikeOne := Referred(body)
	return len(body) <= inline && !looksLikeOne
}

// RowInput is the input that is kept by the statement that makes the job; nil: none.
func (r Request) RowInput() []byte {
	if r.Input == nil || !inRow(r.Input, InlineInput) {
		return nil
	}
	return r.Input
}

// LargeInput is the input that is kept, in chunks, after a claim that is told Run; nil: none.
func (r Request) LargeInput() []byte {
	if r.Input == nil || inRow(r.Input, InlineInput) || len(r.Input) > MaxBody {
		return nil
	}
	return r.Input
}

// Referred is the hash under which the body of a row is kept in chunks; false: the row holds
// the body itself.
func Referred(row []byte) (Hash, bool) {
	if len(row) != referenceSize || !bytes.HasPrefix(row, mark) {
		return Hash{}, false
	}
	return Hash(row[16:]), true
}

// Join puts a body together from its chunks, in order. ErrDamaged: they are not all there, or not
// as they were written.
func Join(row []byte, chunks [][]byte) ([]byte, error) {
	hash, _ := Referred(row)
	size := binary.BigEndian.Uint64(row[len(mark):])
	body := bytes.Join(chunks, nil)
	if uint64(len(body)) != size {
		return nil, fmt.Errorf("%w: its %d chunks have %d bytes of %d", ErrDamaged, len(chunks), len(body), size)
	}
	if sha256.Sum256(body) != hash {
		return nil, fmt.Errorf("%w: its %d bytes have another SHA-256 than %s", ErrDamaged, size, hash)
	}
	return body, nil
}

// Light is the result as a claim is told of it: without a body that lies in chunks.
func (r *Result) Light() *Result {
	if r == nil || len(r.Body) <= InlineBody {
		return r
	}
	return &Result{ID: r.ID, Schema: r.Schema}
}
