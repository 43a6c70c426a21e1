-- J11, J12, J13 and J19b, chosen on the locked row by the statement before.
-- $1 tenant, $2 job, $3 now, $4 state, $5 fence raised by, $6 carrier, $7 due at, $8 class, $9 text,
-- $10 runs given back, $11 panics, $12 actor, $13 reason
with up as (
  update paidonce.job b set
    state = $4, fence = b.fence + $5, carrier = $6, next_at = $7, error_class = $8, error_text = $9,
    runs = greatest(b.runs - $10, 0), panics = b.panics + $11,
    owner = null, owner_epoch = null, claim_token = null, run_deadline = null,
    unknown_at = case when $4 = 'unknown' then $3::timestamptz end,
    events = b.events + 1, updated_at = $3
  where b.tenant = $1 and b.id = $2 and b.state = 'running'
  returning b.tenant, b.id, b.part_on, b.events
)
insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
select tenant, id, events, part_on, $3, 'running', $4, $12, $13 from up
