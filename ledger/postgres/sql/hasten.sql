-- J18w: a person has a job run at once that waits. Its row is locked.
-- $1 tenant, $2 job, $3 now, $4 actor, $5 reason
with up as (
  update paidonce.job b set carrier = 'ledger', next_at = $3, events = b.events + 1, updated_at = $3
  where b.tenant = $1 and b.id = $2
  returning b.tenant, b.id, b.part_on, b.events
)
insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
select tenant, id, events, part_on, $3, 'ready', 'ready', $4, $5 from up
