package postgres_test

import "testing"

// TestSurplusOfAWait: a commit that waits for the job's row marks what was paid for meanwhile, which its statement's own snapshot
// does not show, and books on the row as it is then.
func TestSurplusOfAWait(t *testing.T) { ways(t, 2, surplusOfAWait) }

func surplusOfAWait(f *fixture) {
	x := f.newLife("waits")
	for _, s := range stages[:4] { // up to its answer
		if err := s.do(x); err != nil {
			f.Fatalf("%s: %v", s.name, err)
		}
	}
	tx := f.lock(x.req.Key)
	for _, sql := range []string{ // another attempt of the run, from its gate to its answer
		"update paidonce.job set attempts = attempts + 1, cost = cost + 4, events = events + 2 where id = $1",
		`insert into paidonce.attempt (tenant, job, id, part_on, generation, n, fence, state, call_name, input_key, route, provider, model, config, client_request_id,
			timeout, reserve, late_seen, sent_at, ended_at, captured, seen_by, cost, cost_source)
			select tenant, job, gen_random_uuid(), part_on, generation, 2, fence, state, 'other', input_key, route, provider, model, config, client_request_id,
			timeout, reserve, late_seen, sent_at, ended_at, 5, seen_by, 4, cost_source from paidonce.attempt where job = $1`,
		`insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
			select tenant, job, n + 2, part_on, at, from_state, to_state, actor, reason from paidonce.event where job = $1 and n > 1`,
	} {
		if _, err := tx.Exec(f.Context(), sql, x.lease.Job); err != nil {
			f.Fatalf("%s: %v", sql, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- stages[4].do(x) }()
	waitForLocks(f.T, f.db, 1)
	if err := tx.Commit(f.Context()); err != nil {
		f.Fatal(err)
	}
	if err := <-done; err != nil {
		f.Fatal(err)
	}
	f.want(x.req.Key, "done runs 1 fence 1 open 0 attempts 2 reserved 0 events 6 result true marks 0")
	j, err := f.Job(f.Context(), x.req.Key)
	if err != nil || *j.Cost != 7 || j.Attempts[0].Surplus || !j.Attempts[1].Surplus {
		f.Errorf("%+v %v", j, err)
	}
}
