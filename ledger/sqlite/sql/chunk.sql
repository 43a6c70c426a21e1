-- A chunk of a body of a job that is there. The same body is the same chunks.
-- ?1 tenant, ?2 job, ?3 hash, ?4 number, ?5 body
insert into paidonce_chunk (tenant, job, hash, n, body)
select tenant, id, ?3, ?4, ?5 from paidonce_job where tenant = ?1 and id = ?2
on conflict do nothing
