package audit

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"
)

// A record is a paid call as it is sorted: identity, time (those without one last), place in the logs, so
// that equal calls come out together, in the order in which they were made; then cost, tokens, answer,
// and the names for people, with their lengths before them.
const (
	placeAt  = 24 // behind identity and time
	keySize  = 32
	fixed    = keySize + 8 + 8 + 8 + 2
	maxShown = 255 // bytes of a name
)

// never stands for a time that is not known.
const never = 1<<64 - 1

func encode(b []byte, c *call, place uint64) []byte {
	at := uint64(never)
	if c.at != 0 {
		at = uint64(c.at)
	}
	b = append(b, c.identity[:]...)
	for _, n := range []uint64{at, place, uint64(c.cost), uint64(c.tokens), c.answer} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	job, entity := cut(c.job), cut(c.entity)
	b = append(b, byte(len(job)), byte(len(entity)))
	return append(append(b, job...), entity...)
}

// cut keeps what is shown of a name; it is told apart by all of it.
func cut(s string) string {
	if len(s) <= maxShown {
		return s
	}
	s = s[:maxShown]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// decode is the call of a record and the record's length.
func decode(b []byte) (c call, size int) {
	copy(c.identity[:], b)
	word := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	if t := word(16); t != never {
		c.at = int64(t)
	}
	c.cost, c.tokens, c.answer = int64(word(keySize)), int64(word(keySize+8)), word(keySize+16)
	job := fixed + int(b[fixed-2])
	size = job + int(b[fixed-1])
	c.job, c.entity = string(b[fixed:job]), string(b[job:size])
	return c, size
}

// sorter sorts any number of records in bounded memory. What does not fit is written, sorted, to one
// temporary file and merged at the end.
type sorter struct {
	folder string
	memory int // bytes of records that are held

	held    []byte
	offsets []uint32 // of the held records
	file    *os.File // nil: all fits
	out     *bufio.Writer
	named   bool    // the file has a name still
	size    int64   // of the file
	ends    []int64 // of the sorted parts of the file
}

// add takes the records that stand in b.
func (s *sorter) add(b []byte) error {
	for len(b) > 0 {
		n := fixed + int(b[fixed-2]) + int(b[fixed-1])
		if len(s.held)+n > s.memory && len(s.held) > 0 {
			if err := s.spill(); err != nil {
				return err
			}
		}
		s.offsets = append(s.offsets, uint32(len(s.held)))
		s.held = append(s.held, b[:n]...)
		b = b[n:]
	}
	return nil
}

func (s *sorter) sort() {
	slices.SortFunc(s.offsets, func(a, b uint32) int {
		return bytes.Compare(s.held[a:a+keySize], s.held[b:b+keySize])
	})
}

// spill writes what is held to the file.
func (s *sorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.folder, "paidonce-audit-"); err != nil {
			return s.fault("making", err)
		}
		// It has no name from now on and goes with the process, however that ends. Where a
		// system cannot do that, close removes it.
		s.named = os.Remove(s.file.Name()) != nil
	}
	if s.out == nil {
		s.out = bufio.NewWriterSize(s.file, 256<<10)
	}
	s.sort()
	for _, o := range s.offsets {
		n := uint32(fixed) + uint32(s.held[o+fixed-2]) + uint32(s.held[o+fixed-1])
		if _, err := s.out.Write(s.held[o : o+n]); err != nil {
			return s.fault("writing", err)
		}
	}
	if err := s.out.Flush(); err != nil {
		return s.fault("writing", err)
	}
	s.size += int64(len(s.held))
	s.ends = append(s.ends, s.size)
	s.held, s.offsets = s.held[:0], s.offsets[:0]
	return nil
}

func (s *sorter) fault(doing string, err error) error {
	return fmt.Errorf("PO562 %s a temporary file in %s, which had taken %d MB of it: %w; set another folder with --temp, with about a tenth of the unpacked logs' size free", doing, s.folder, s.size>>20, err)
}

// each calls do with every record in order.
func (s *sorter) each(do func(rec []byte) error) error {
	if s.file == nil {
		s.sort()
		for _, o := range s.offsets {
			if err := do(s.held[o:]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(s.held) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.held, s.offsets = nil, nil
	return s.merge(do)
}

func (s *sorter) merge(do func(rec []byte) error) error {
	buffer := min(max(s.memory/len(s.ends), 4<<10), 256<<10)
	var parts merging
	begin := int64(0)
	for _, end := range s.ends {
		p := &part{r: bufio.NewReaderSize(io.NewSectionReader(s.file, begin, end-begin), buffer)}
		if ok, err := p.next(); err != nil {
			return s.fault("reading", err)
		} else if ok {
			parts = append(parts, p)
		}
		begin = end
	}
	heap.Init(&parts)
	for len(parts) > 0 {
		p := parts[0]
		if err := do(p.rec); err != nil {
			return err
		}
		ok, err := p.next()
		switch {
		case err != nil:
			return s.fault("reading", err)
		case ok:
			heap.Fix(&parts, 0)
		default:
			heap.Pop(&parts)
		}
	}
	return nil
}

// close ends the sorter and gives the file's room back.
func (s *sorter) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.file.Name()))
	}
	return err
}

// part is a sorted part of the file.
type part struct {
	r   *bufio.Reader
	rec []byte // the next record
}

// next reads the next record; false: there is none.
func (p *part) next() (bool, error) {
	head, err := p.r.Peek(fixed)
	if len(head) == 0 && errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n := fixed + int(head[fixed-2]) + int(head[fixed-1])
	p.rec = slices.Grow(p.rec[:0], n)[:n]
	_, err = io.ReadFull(p.r, p.rec)
	return err == nil, err
}

// merging is a heap of parts by their next record.
type merging []*part

func (m merging) Len() int { return len(m) }
func (m merging) Less(i, j int) bool {
	return bytes.Compare(m[i].rec[:keySize], m[j].rec[:keySize]) < 0
}
func (m merging) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *merging) Push(x any)   { *m = append(*m, x.(*part)) }
func (m *merging) Pop() any {
	old := *m
	p := old[len(old)-1]
	*m = old[:len(old)-1]
	return p
}
