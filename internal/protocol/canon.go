package protocol

import "slices"

// canon makes worlds equal that differ in nothing that can matter any more. Numbers that are compared
// for equality alone are replaced by their ranks, and what nobody will look at again is cleared.
func (w *world) canon() {
	w.clear()
	w.fences()
	w.counts()
	for i := range w.workers {
		w.epochs(i)
	}
}

// clear forgets what is over.
func (w *world) clear() {
	for n := range w.attempts {
		a := &w.attempts[n]
		used := false
		for i := range w.workers {
			k := &w.workers[i]
			used = used || int(k.attempt) == n && k.at != idle || k.seeks.at != resting && int(k.seeks.attempt) == n
		}
		if used {
			continue
		}
		if (a.state > received && a.state < closedUnknown || a.gone) && a.wire != flying && a.wire != executed {
			*a = attempt{} // it never was, for certain; there is room for another
			continue
		}
		if a.wire != flying {
			a.cut = false
		}
		if a.state == received || a.state == rejected || a.state == notSent || a.gone {
			a.overdue, a.settled = false, false
		}
		if a.state == received {
			a.fence = 0
		}
	}
	for i := range w.workers {
		k := &w.workers[i]
		if k.at < looking || k.at > releasing {
			k.fence, k.late, k.mayLose, k.fail = 0, 0, false, false
		}
		if k.at == claiming || k.at == looking || k.at == gating || k.at == unsure || k.at >= releasing {
			k.attempt = nobody
		}
	}
	if r := &w.row; r.state >= done {
		r.due, r.held = false, false
	}
}

// counts keeps of numbers what is asked of them: which answer came first, and whether a run saw the last.
func (w *world) counts() {
	r := &w.row
	var rank [maxAttempts]uint8
	r.captures = 0
	for n, a := range w.attempts {
		for _, b := range w.attempts {
			if a.captured > 0 && b.captured > 0 && b.gen == a.gen && b.call == a.call && b.captured <= a.captured {
				rank[n]++
			}
		}
		r.captures = max(r.captures, rank[n])
	}
	for n := range rank {
		w.attempts[n].captured = rank[n]
	}
	late := r.late
	r.late = 1
	for i := range w.workers {
		if k := &w.workers[i]; k.at > looking && k.at <= releasing && k.late == late {
			k.late = 1
		} else {
			k.late = 0
		}
	}
}

// fences ranks the fences that somebody still holds.
func (w *world) fences() {
	all := make([]*uint8, 0, 8)
	all = append(all, &w.row.fence)
	for n := range w.attempts {
		if w.attempts[n].fence > 0 {
			all = append(all, &w.attempts[n].fence)
		}
	}
	for i := range w.workers {
		if k := &w.workers[i]; k.fence > 0 {
			all = append(all, &k.fence)
		}
		if k := &w.workers[i]; k.stray > 0 {
			all = append(all, &k.stray)
		}
		if s := &w.workers[i].seeks; s.at != resting {
			all = append(all, &s.fence)
		}
	}
	slices.SortFunc(all, func(a, b *uint8) int { return int(*a) - int(*b) })
	rank, last := uint8(0), uint8(0)
	for _, f := range all {
		if *f > last {
			last = *f
			rank++
		}
		*f = rank
	}
	if !w.row.exists {
		w.row.fence = 0
	}
}

// epochs forgets how often a process that owns nothing died.
func (w *world) epochs(i int) {
	k := &w.workers[i]
	if int(w.row.owner) == i {
		return
	}
	closed := k.closed >= k.epoch
	k.epoch, k.closed = 1, 0
	if closed {
		k.closed = 1
	}
	if k.token > 0 {
		k.token = token(i, k.epoch)
	}
}

// token is that of every claim of a process, until it dies.
func token(i int, epoch uint8) uint8 { return 2*epoch + uint8(i) + 1 }
