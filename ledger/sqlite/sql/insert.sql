-- J1: the row of a key that nobody has seen. Its id is the tenant's next one: whoever
-- inserts holds the only write lock.
-- ?1 tenant, ?2 key, ?3 action, ?4 input hash, ?5 input kept, ?6 carrier, ?7 owner, ?8 epoch, ?9 claim token,
-- ?10 run deadline, ?11 now, ?12 receives, ?13 budget, ?14 events, ?15 origin or null, ?16 most calls and ?17 lifetime, or nulls
insert into paidonce_job (tenant, id, key, action, input_hash, input_kept, carrier, owner, owner_epoch, claim_token,
  run_deadline, state, fence, runs, next_at, created_at, updated_at, receives, budget, events, origin, max_calls, lifetime)
select ?1, max(coalesce((select max(id) from paidonce_job where tenant = ?1), 0),
  coalesce((select id from paidonce_floor where tenant = ?1), 0)) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
  ?10, 'running', 1, 1, ?11, ?11, ?11, ?12, ?13, ?14, ?15, ?16, ?17
returning id
