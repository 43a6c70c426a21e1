-- Roles with no more rights than their work needs. Run it as the owner of the schema, who is whoever ran `worker migrate up`,
-- once the schema is there and again after each upgrade of it; running it again changes nothing else. Making the roles needs
-- createrole; where they exist already it does not. They have no login: give them one (alter role paidonce_worker login
-- password '…'), or grant them to roles that have (grant paidonce_worker to app).
--
--   paidonce_worker    runs jobs, purges, decides (worker run, jobs resolve, dlq redrive, …); deletes and drops nothing by itself
--   paidonce_reader    reads everything, bodies too (worker jobs list and show, report, consoles)
--   paidonce_producer  makes jobs (package submit) and sees their states; reads no body, changes and deletes nothing
do $$
declare
  name text;
begin
  foreach name in array array['paidonce_worker', 'paidonce_reader', 'paidonce_producer'] loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname = name) then
      execute format('create role %I nologin', name);
    end if;
  end loop;
end $$;

-- The purge runs with its owner's rights, and everybody may call a function unless told otherwise.
revoke all on schema paidonce from public;
revoke execute on all functions in schema paidonce from public, paidonce_reader, paidonce_producer;

grant usage on schema paidonce to paidonce_worker, paidonce_reader, paidonce_producer;

grant select, insert, update on all tables in schema paidonce to paidonce_worker;
revoke insert, update on paidonce.schema_version from paidonce_worker;
grant execute on all functions in schema paidonce to paidonce_worker;
-- Partitions and tables of later versions; they are read and written by those who upgrade first.
alter default privileges in schema paidonce grant select, insert, update on tables to paidonce_worker;
alter default privileges in schema paidonce grant execute on functions to paidonce_worker;

grant select on all tables in schema paidonce to paidonce_reader;
alter default privileges in schema paidonce grant select on tables to paidonce_reader;

grant insert on paidonce.job, paidonce.input, paidonce.event to paidonce_producer;
grant select (tenant, id, key, action, input_hash, part_on, state, created_at) on paidonce.job to paidonce_producer;
grant select on paidonce.schema_version to paidonce_producer;
