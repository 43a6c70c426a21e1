-- An adopted job goes back until its next look.
-- $1 tenant, $2 job, $3 now, $4 due at, $5 actor, $6 reason
with up as (
  update paidonce.job b set owner = null, owner_epoch = null, next_at = $4, events = b.events + 1, updated_at = $3
  where b.tenant = $1 and b.id = $2
  returning b.tenant, b.id, b.part_on, b.events
)
insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
select tenant, id, events, part_on, $3, 'unknown', 'unknown', $5, $6 from up
