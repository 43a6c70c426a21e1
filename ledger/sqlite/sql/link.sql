-- A step under the job that asks for it. One that an earlier generation asked for is that of this one then.
-- tenant, job, key, generation, place, action, input hash
insert into paidonce_step (tenant, job, key, generation, n, action, input_hash) values (?, ?, ?, ?, ?, ?, ?)
on conflict (tenant, job, key) do update set
  generation = excluded.generation, n = excluded.n, action = excluded.action, input_hash = excluded.input_hash
