-- J10, the last statement of the result's transaction: no lock on the job is held while
-- the user's own statements run. The job row is locked by the statement before.
-- $1 tenant, $2 job, $3 fence, $4 result id, $5 schema, $6 body, $7 attempts used
with n as materialized (
  select j.*, clock_timestamp() as now from paidonce.job j where j.tenant = $1 and j.id = $2
), ok as materialized (
  select * from n where fence = $3 and state = 'running' and open_calls = 0
), up as (
  update paidonce.job b set
    state = 'done', result_id = $4, done_at = ok.now, owner = null, owner_epoch = null, claim_token = null,
    run_deadline = null, error_class = null, error_text = null, events = b.events + 1, updated_at = ok.now
  from ok where b.tenant = ok.tenant and b.id = ok.id
  returning b.tenant, b.id, b.part_on, b.events, b.updated_at
), res as (
  insert into paidonce.result (tenant, job, generation, part_on, id, schema_name, body)
  select tenant, id, generation, part_on, $4, $5, $6 from ok
), sur as (
  update paidonce.attempt a set surplus = true
  from ok
  where ok.attempts > 0 and a.tenant = ok.tenant and a.job = ok.id and a.part_on = ok.part_on
    and a.generation = ok.generation and a.state = 'received' and not a.surplus and a.id <> all ($7)
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select up.tenant, up.id, up.events, up.part_on, up.updated_at, 'running', 'done', ok.owner, 'J10 complete'
  from up join ok on ok.tenant = up.tenant and ok.id = up.id
)
select n.state, n.fence, n.open_calls, coalesce(n.result_id = $4, false) as mine, exists (select from up) as done from n
