-- What reopening a job looks at beside its row: whether its input is there, whether the token was used,
-- and the calls of its generation that have an attempt closed as unknown, and no answer.
-- ?1 tenant, ?2 job, ?3 generation, ?4 token
select exists (select 1 from paidonce_input where tenant = ?1 and job = ?2),
       exists (select 1 from paidonce_rerun where tenant = ?1 and job = ?2 and token = ?4),
       (select count(*) from (
          select 1 from paidonce_attempt where tenant = ?1 and job = ?2 and generation = ?3
          group by call_name, input_key having max(state = 'unknown') = 1 and max(state = 'received') = 0))
