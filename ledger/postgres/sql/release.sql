-- J11, J12, J13 and J19b, chosen on the locked rows by the statement before.
-- $1 tenants, $2 jobs, $3 now, $4 states, $5 fences raised by, $6 carriers, $7 due at, $8 classes, $9 texts,
-- $10 runs given back, $11 panics, $12 actors, $13 reasons
with up as (
  update paidonce.job b set
    state = q.state, fence = b.fence + q.raise, carrier = q.carrier, next_at = q.next_at,
    error_class = q.class, error_text = q.text,
    runs = greatest(b.runs - q.runs_back, 0), panics = b.panics + q.panics,
    owner = null, owner_epoch = null, claim_token = null, run_deadline = null,
    unknown_at = case when q.state = 'unknown' then q.now end,
    events = b.events + 1, updated_at = q.now
  from unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::int[], $6::text[], $7::timestamptz[], $8::text[], $9::text[],
    $10::int[], $11::int[], $12::text[], $13::text[])
    as q(tenant, job, now, state, raise, carrier, next_at, class, text, runs_back, panics, who, reason)
  where b.tenant = q.tenant and b.id = q.job and b.state = 'running'
  returning b.tenant, b.id, b.part_on, b.events, q.now, q.state, q.who, q.reason
)
insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
select tenant, id, events, part_on, now, 'running', state, who, reason from up
