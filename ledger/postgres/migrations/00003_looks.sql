-- +goose Up

set local lock_timeout = '2s';

-- Token of the job's last adoption: a repeated one is recognised by it, together with the owner.
alter table paidonce.job add column adoption uuid;

-- Looks at an unknown job that the line stands for; 0: it is no look.
alter table paidonce.event add column looks int not null default 0;
