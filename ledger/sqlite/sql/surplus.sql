-- The answers that the result did not need. The ids that it used are a JSON array of
-- hexadecimal texts.
-- tenant, job, generation, used
update paidonce_attempt set surplus = 1
where tenant = ? and job = ? and generation = ? and state = 'received' and not surplus
  and lower(hex(id)) not in (select value from json_each(?))
