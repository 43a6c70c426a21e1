-- J18 and J18r: a person has an ended job run again. The job's row is locked.
-- $1 tenant, $2 job, $3 now, $4 the token of a new generation or null, $5 actor, $6 reason
with j as (
  select tenant, id, state as was, generation, part_on from paidonce.job where tenant = $1 and id = $2
), tok as (
  insert into paidonce.rerun_token (tenant, job, token, at) select tenant, id, $4, $3 from j where $4::text is not null
), sur as (
  -- What a result used stays of use; of a generation without one nothing is.
  update paidonce.attempt a set surplus = true
  from j
  where $4::text is not null and j.was <> 'done' and a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on
    and a.generation = j.generation and a.state = 'received'
), up as (
  update paidonce.job b set
    state = 'ready', generation = b.generation + ($4::text is not null)::int, carrier = 'ledger', runs = 0, panics = 0,
    replays = case when $4::text is null then b.replays else 0 end,
    uncounted = case when $4::text is null then b.uncounted else b.attempts end,
    began_at = case when $4::text is null then b.began_at else $3 end, cancel = false, next_at = $3, error_class = null, error_text = null,
    result_id = null, done_at = null, events = b.events + 1, updated_at = $3
  from j where b.tenant = j.tenant and b.id = j.id
  returning b.tenant, b.id, b.part_on, b.events, b.generation, j.was
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events, part_on, $3, was, 'ready', $5, $6 from up
)
select generation from up
