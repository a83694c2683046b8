BEGIN TRANSACTION;
CREATE TABLE admin_sessions (
            id TEXT PRIMARY KEY,
            who TEXT NOT NULL,
            grants TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            expires_ms BIGINT NOT NULL
        );
CREATE TABLE api_tokens (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            digest TEXT NOT NULL UNIQUE,
            hint TEXT NOT NULL,
            role TEXT NOT NULL,
            team TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            created_by TEXT NOT NULL,
            expires_ms BIGINT,
            revoked_ms BIGINT
        );
CREATE TABLE archived_ids (
            day BIGINT NOT NULL,
            place BIGINT NOT NULL,
            ids TEXT NOT NULL,
            PRIMARY KEY (day, place)
        ) WITHOUT ROWID
        ;
CREATE TABLE archived_usage (
            hour BIGINT NOT NULL,
            id TEXT NOT NULL,
            part TEXT NOT NULL,
            key TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            provider TEXT NOT NULL,
            tags TEXT NOT NULL,
            calls BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            estimated BIGINT NOT NULL,
            approximate BIGINT NOT NULL, team TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (hour, id)
        ) WITHOUT ROWID
        ;
CREATE TABLE archives (
            name TEXT PRIMARY KEY,
            day BIGINT NOT NULL,
            bytes BIGINT NOT NULL,
            calls BIGINT NOT NULL
        );
CREATE TABLE attempts (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            number BIGINT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            status BIGINT NOT NULL,
            code TEXT NOT NULL,
            measure TEXT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT,
            price TEXT NOT NULL,
            began_ms BIGINT NOT NULL,
            first_event_ms BIGINT,
            duration_ms BIGINT NOT NULL,
            events BIGINT NOT NULL, longest_gap_ms BIGINT NOT NULL DEFAULT 0, stalls TEXT NOT NULL DEFAULT '[]', audio_input BIGINT NOT NULL DEFAULT 0, audio_output BIGINT NOT NULL DEFAULT 0, cache_write_1h BIGINT NOT NULL DEFAULT 0, approximate BIGINT NOT NULL DEFAULT 0, tier TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (call, number)
        ) WITHOUT ROWID
        ;
INSERT INTO "attempts" VALUES(1,0,'openai','gpt','completed',200,'','reported',10,5,0,0,0,1000,'configured',1,20,100,9,0,'[]',0,0,0,0,'');
INSERT INTO "attempts" VALUES(2,0,'groq','llama','failed',200,'','reported',10,1,0,0,0,300,'configured',1,20,100,9,0,'[]',0,0,0,0,'');
INSERT INTO "attempts" VALUES(2,1,'openai','gpt','completed',200,'','reported',20,7,0,0,0,2000,'configured',1,20,100,9,0,'[]',0,0,0,0,'');
INSERT INTO "attempts" VALUES(3,0,'groq','llama','truncated',200,'','reported',30,3,0,0,0,NULL,'configured',1,20,100,9,0,'[]',0,0,0,0,'');
INSERT INTO "attempts" VALUES(4,0,'openai','gpt','completed',200,'','reported',40,11,0,0,0,4000,'configured',1,20,100,9,0,'[]',0,0,0,0,'');
CREATE TABLE audit (
            place INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms BIGINT NOT NULL,
            who TEXT NOT NULL,
            via TEXT NOT NULL,
            address TEXT NOT NULL,
            action TEXT NOT NULL,
            subject TEXT NOT NULL,
            before_json TEXT NOT NULL,
            after_json TEXT NOT NULL
        );
INSERT INTO "audit" VALUES(1,1794991299540,'penstock','gateway','','key.create','key_a','{}','{"name":"Search","team":"","owner":"","expires":null,"revoked":null,"hint":"wxyz","rotated":null,"previous_until":null,"budget":"10.00","period":"total","requests_per_minute":null,"tokens_per_minute":null,"concurrent":null,"models":[],"tags":{},"strict":false,"blocked":null,"budgets":{},"end_users":{"budgets":{},"requests_per_minute":null,"tokens_per_minute":null,"concurrent":null}}');
CREATE TABLE budget_warnings (
            account TEXT NOT NULL,
            label TEXT NOT NULL,
            percent BIGINT NOT NULL,
            period TEXT NOT NULL,
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            title TEXT NOT NULL,
            budget BIGINT NOT NULL,
            spent BIGINT NOT NULL,
            refused BIGINT NOT NULL,
            at_ms BIGINT NOT NULL, delivery TEXT NOT NULL DEFAULT 'none', attempts BIGINT NOT NULL DEFAULT 0, due_ms BIGINT,
            PRIMARY KEY (account, label, percent)
        ) WITHOUT ROWID
        ;
CREATE TABLE call_repairs (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            code TEXT NOT NULL,
            count BIGINT NOT NULL,
            PRIMARY KEY (call, code)
        ) WITHOUT ROWID
        ;
INSERT INTO "call_repairs" VALUES(2,'no-done',2);
CREATE TABLE call_tags (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (call, name)
        ) WITHOUT ROWID
        ;
INSERT INTO "call_tags" VALUES(1,'team','search');
INSERT INTO "call_tags" VALUES(3,'team','ads');
CREATE TABLE call_traits (
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            at_ms BIGINT NOT NULL,
            call BIGINT NOT NULL,
            PRIMARY KEY (kind, name, at_ms, call)
        ) WITHOUT ROWID
        ;
INSERT INTO "call_traits" VALUES('attempt','failed',1790086400000,2);
INSERT INTO "call_traits" VALUES('attempt','truncated',1790129600000,3);
INSERT INTO "call_traits" VALUES('provider','groq',1790086400000,2);
INSERT INTO "call_traits" VALUES('provider','groq',1790129600000,3);
INSERT INTO "call_traits" VALUES('provider','openai',1790043200000,1);
INSERT INTO "call_traits" VALUES('provider','openai',1790086400000,2);
INSERT INTO "call_traits" VALUES('repair','no-done',1790086400000,2);
INSERT INTO "call_traits" VALUES('tag:team','ads',1790129600000,3);
INSERT INTO "call_traits" VALUES('tag:team','search',1790043200000,1);
INSERT INTO "call_traits" VALUES('target','groq/llama',1790086400000,2);
INSERT INTO "call_traits" VALUES('target','groq/llama',1790129600000,3);
INSERT INTO "call_traits" VALUES('target','openai/gpt',1790043200000,1);
INSERT INTO "call_traits" VALUES('target','openai/gpt',1790086400000,2);
CREATE TABLE calls (
            place INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            at_ms BIGINT NOT NULL,
            settled_ms BIGINT NOT NULL,
            key TEXT NOT NULL,
            surface TEXT NOT NULL,
            model TEXT NOT NULL,
            stream BIGINT NOT NULL,
            outcome TEXT NOT NULL,
            status BIGINT NOT NULL,
            code TEXT NOT NULL,
            first_event_ms BIGINT,
            duration_ms BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            measure TEXT NOT NULL,
            repairs TEXT NOT NULL,
            tags TEXT NOT NULL,
            end_user TEXT NOT NULL
        , approximate BIGINT NOT NULL DEFAULT 0, losses TEXT NOT NULL DEFAULT '{}', team TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '');
INSERT INTO "calls" VALUES(1,'call_1',1790043200000,1790043200120,'key_a','chat','smart',1,'completed',200,'',21,120,10,5,0,0,0,1000,0,'reported','{}','{"team":"search"}','',0,'{}','','');
INSERT INTO "calls" VALUES(2,'call_2',1790086400000,1790086400120,'key_a','chat','smart',1,'completed',200,'',21,120,30,8,0,0,0,2300,0,'reported','{"no-done":2}','{}','',0,'{}','','');
INSERT INTO "calls" VALUES(3,'call_3',1790129600000,1790129600120,'key_b','chat','smart',1,'truncated',200,'',21,120,30,3,0,0,0,0,1,'reported','{}','{"team":"ads"}','',0,'{}','','');
INSERT INTO "calls" VALUES(4,'call_4',1790172800000,1790172800120,'key_b','chat','smart',1,'completed',200,'',21,120,40,11,0,0,0,4000,0,'reported','{}','{}','somebody',0,'{}','','');
CREATE TABLE keys (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            hint TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            budget BIGINT,
            period TEXT NOT NULL,
            requests_per_minute BIGINT,
            tokens_per_minute BIGINT,
            concurrent BIGINT,
            models TEXT NOT NULL,
            tags TEXT NOT NULL,
            expires_ms BIGINT,
            revoked_ms BIGINT,
            replaced_by TEXT NOT NULL
        , rotated_ms BIGINT, previous TEXT NOT NULL DEFAULT '', previous_until_ms BIGINT, strict BIGINT NOT NULL DEFAULT 0, blocked_ms BIGINT, team TEXT NOT NULL DEFAULT '', budgets TEXT NOT NULL DEFAULT '{}', end_users TEXT NOT NULL DEFAULT '{}', owner TEXT NOT NULL DEFAULT '');
INSERT INTO "keys" VALUES('key_a','Search','000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f','wxyz',5,10000000000,'total',NULL,NULL,NULL,'[]','{}',NULL,NULL,'',NULL,'',NULL,0,NULL,'','{}','{}','');
CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO "meta" VALUES('schema',15);
INSERT INTO "meta" VALUES('keys',1);
INSERT INTO "meta" VALUES('kept',0);
INSERT INTO "meta" VALUES('summed',3);
INSERT INTO "meta" VALUES('kept_sums',0);
INSERT INTO "meta" VALUES('pruning',0);
INSERT INTO "meta" VALUES('kept_audit',0);
INSERT INTO "meta" VALUES('people',0);
CREATE TABLE spending (
            spender TEXT NOT NULL,
            day BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            PRIMARY KEY (spender, day)
        ) WITHOUT ROWID
        ;
INSERT INTO "spending" VALUES('key_a',20718,3300);
CREATE TABLE summed_answers (
            width BIGINT NOT NULL,
            slot BIGINT NOT NULL,
            name BIGINT NOT NULL,
            count BIGINT NOT NULL,
            estimated BIGINT NOT NULL,
            PRIMARY KEY (width, slot, name)
        ) WITHOUT ROWID
        ;
INSERT INTO "summed_answers" VALUES(1800000,994468,5,1,0);
INSERT INTO "summed_answers" VALUES(1800000,994492,1,1,0);
INSERT INTO "summed_answers" VALUES(1800000,994492,5,1,0);
INSERT INTO "summed_answers" VALUES(1800000,994492,8,2,0);
INSERT INTO "summed_answers" VALUES(1800000,994516,4,1,0);
INSERT INTO "summed_answers" VALUES(10800000,165744,5,1,0);
INSERT INTO "summed_answers" VALUES(10800000,165748,1,1,0);
INSERT INTO "summed_answers" VALUES(10800000,165748,5,1,0);
INSERT INTO "summed_answers" VALUES(10800000,165748,8,2,0);
INSERT INTO "summed_answers" VALUES(10800000,165752,4,1,0);
CREATE TABLE summed_names (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            what TEXT NOT NULL
        );
INSERT INTO "summed_names" VALUES(1,'groq','llama','failed');
INSERT INTO "summed_names" VALUES(2,'groq','llama','first');
INSERT INTO "summed_names" VALUES(3,'groq','llama','gap');
INSERT INTO "summed_names" VALUES(4,'groq','llama','truncated');
INSERT INTO "summed_names" VALUES(5,'openai','gpt','completed');
INSERT INTO "summed_names" VALUES(6,'openai','gpt','first');
INSERT INTO "summed_names" VALUES(7,'openai','gpt','gap');
INSERT INTO "summed_names" VALUES(8,'openai','gpt','repair:no-done');
CREATE TABLE summed_times (
            width BIGINT NOT NULL,
            slot BIGINT NOT NULL,
            name BIGINT NOT NULL,
            least BIGINT NOT NULL,
            most BIGINT NOT NULL,
            b0 BIGINT NOT NULL, b1 BIGINT NOT NULL, b2 BIGINT NOT NULL, b3 BIGINT NOT NULL, b4 BIGINT NOT NULL, b5 BIGINT NOT NULL, b6 BIGINT NOT NULL, b7 BIGINT NOT NULL, b8 BIGINT NOT NULL, b9 BIGINT NOT NULL, b10 BIGINT NOT NULL, b11 BIGINT NOT NULL, b12 BIGINT NOT NULL, b13 BIGINT NOT NULL, b14 BIGINT NOT NULL, b15 BIGINT NOT NULL, b16 BIGINT NOT NULL, b17 BIGINT NOT NULL, b18 BIGINT NOT NULL, b19 BIGINT NOT NULL, b20 BIGINT NOT NULL, b21 BIGINT NOT NULL, b22 BIGINT NOT NULL, b23 BIGINT NOT NULL, b24 BIGINT NOT NULL, b25 BIGINT NOT NULL, b26 BIGINT NOT NULL, b27 BIGINT NOT NULL, b28 BIGINT NOT NULL, b29 BIGINT NOT NULL, b30 BIGINT NOT NULL, b31 BIGINT NOT NULL, b32 BIGINT NOT NULL, b33 BIGINT NOT NULL, b34 BIGINT NOT NULL, b35 BIGINT NOT NULL, b36 BIGINT NOT NULL, b37 BIGINT NOT NULL, b38 BIGINT NOT NULL, b39 BIGINT NOT NULL, b40 BIGINT NOT NULL, b41 BIGINT NOT NULL, b42 BIGINT NOT NULL, b43 BIGINT NOT NULL, b44 BIGINT NOT NULL, b45 BIGINT NOT NULL, b46 BIGINT NOT NULL, b47 BIGINT NOT NULL, b48 BIGINT NOT NULL, b49 BIGINT NOT NULL, b50 BIGINT NOT NULL, b51 BIGINT NOT NULL, b52 BIGINT NOT NULL, b53 BIGINT NOT NULL, b54 BIGINT NOT NULL, b55 BIGINT NOT NULL, b56 BIGINT NOT NULL, b57 BIGINT NOT NULL, b58 BIGINT NOT NULL, b59 BIGINT NOT NULL, b60 BIGINT NOT NULL, b61 BIGINT NOT NULL, b62 BIGINT NOT NULL, b63 BIGINT NOT NULL, b64 BIGINT NOT NULL, b65 BIGINT NOT NULL, b66 BIGINT NOT NULL, b67 BIGINT NOT NULL, b68 BIGINT NOT NULL, b69 BIGINT NOT NULL, b70 BIGINT NOT NULL, b71 BIGINT NOT NULL, b72 BIGINT NOT NULL, b73 BIGINT NOT NULL, b74 BIGINT NOT NULL, b75 BIGINT NOT NULL, b76 BIGINT NOT NULL, b77 BIGINT NOT NULL, b78 BIGINT NOT NULL, b79 BIGINT NOT NULL, b80 BIGINT NOT NULL, b81 BIGINT NOT NULL, b82 BIGINT NOT NULL,
            PRIMARY KEY (width, slot, name)
        ) WITHOUT ROWID
        ;
INSERT INTO "summed_times" VALUES(1800000,994468,6,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(1800000,994468,7,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(1800000,994492,2,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(1800000,994492,3,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(1800000,994492,6,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(1800000,994492,7,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(1800000,994516,2,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(1800000,994516,3,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165744,6,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165744,7,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165748,2,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165748,3,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165748,6,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165748,7,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165752,2,20,20,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "summed_times" VALUES(10800000,165752,3,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
CREATE TABLE summed_usage (
            kind TEXT NOT NULL,
            hour BIGINT NOT NULL,
            name TEXT NOT NULL,
            calls BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            estimated BIGINT NOT NULL, approximate BIGINT NOT NULL DEFAULT 0,
            PRIMARY KEY (kind, hour, name)
        ) WITHOUT ROWID
        ;
INSERT INTO "summed_usage" VALUES('key',497234,'key_a',1,10,5,0,0,0,1000,0,0,0);
INSERT INTO "summed_usage" VALUES('key',497246,'key_a',1,30,8,0,0,0,2300,0,0,0);
INSERT INTO "summed_usage" VALUES('key',497258,'key_b',1,30,3,0,0,0,0,1,0,0);
INSERT INTO "summed_usage" VALUES('model',497234,'smart',1,10,5,0,0,0,1000,0,0,0);
INSERT INTO "summed_usage" VALUES('model',497246,'smart',1,30,8,0,0,0,2300,0,0,0);
INSERT INTO "summed_usage" VALUES('model',497258,'smart',1,30,3,0,0,0,0,1,0,0);
INSERT INTO "summed_usage" VALUES('outcome',497234,'completed',1,10,5,0,0,0,1000,0,0,0);
INSERT INTO "summed_usage" VALUES('outcome',497246,'completed',1,30,8,0,0,0,2300,0,0,0);
INSERT INTO "summed_usage" VALUES('outcome',497258,'truncated',1,30,3,0,0,0,0,1,0,0);
INSERT INTO "summed_usage" VALUES('provider',497234,'openai',1,10,5,0,0,0,1000,0,0,0);
INSERT INTO "summed_usage" VALUES('provider',497246,'groq',1,10,1,0,0,0,300,0,0,0);
INSERT INTO "summed_usage" VALUES('provider',497246,'openai',1,20,7,0,0,0,2000,0,0,0);
INSERT INTO "summed_usage" VALUES('provider',497258,'groq',1,30,3,0,0,0,0,1,0,0);
INSERT INTO "summed_usage" VALUES('team',497234,'',1,10,5,0,0,0,1000,0,0,0);
INSERT INTO "summed_usage" VALUES('team',497246,'',1,30,8,0,0,0,2300,0,0,0);
INSERT INTO "summed_usage" VALUES('team',497258,'',1,30,3,0,0,0,0,1,0,0);
CREATE TABLE teams (
            path TEXT PRIMARY KEY,
            created_ms BIGINT NOT NULL,
            budgets TEXT NOT NULL,
            requests_per_minute BIGINT,
            tokens_per_minute BIGINT,
            concurrent BIGINT,
            models TEXT NOT NULL,
            end_users TEXT NOT NULL,
            blocked_ms BIGINT,
            deleted_ms BIGINT
        );
CREATE INDEX calls_by_time ON calls (at_ms, place);
CREATE INDEX calls_by_key ON calls (key, at_ms, place, cost);
CREATE INDEX calls_by_model ON calls (model, at_ms, place);
CREATE INDEX calls_by_outcome ON calls (outcome, at_ms, place);
CREATE INDEX calls_by_settling ON calls (key, settled_ms, id);
CREATE TRIGGER calls_stay BEFORE UPDATE ON calls BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER calls_remain BEFORE DELETE ON calls WHEN NOT (OLD.settled_ms < (SELECT value FROM meta WHERE name = 'kept')) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER attempts_stay BEFORE UPDATE ON attempts BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER attempts_remain BEFORE DELETE ON attempts WHEN NOT (NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_tags_stay BEFORE UPDATE ON call_tags BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_tags_remain BEFORE DELETE ON call_tags WHEN NOT (NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_repairs_stay BEFORE UPDATE ON call_repairs BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_repairs_remain BEFORE DELETE ON call_repairs WHEN NOT (NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE INDEX summed_names_by_model ON summed_names (model);
CREATE INDEX calls_by_team ON calls (team, at_ms, place, cost) WHERE team <> '';
CREATE INDEX calls_by_team_settling ON calls (team, settled_ms, id) WHERE team <> '';
CREATE INDEX audit_by_time ON audit (at_ms);
CREATE INDEX audit_by_subject ON audit (subject, place);
CREATE TRIGGER audit_stay BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER audit_remain BEFORE DELETE ON audit WHEN NOT (OLD.at_ms < (SELECT value FROM meta WHERE name = 'kept_audit')) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE INDEX budget_warnings_due ON budget_warnings (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX calls_by_user ON calls (end_user, at_ms, place) WHERE end_user <> '';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',1);
INSERT INTO "sqlite_sequence" VALUES('calls',4);
INSERT INTO "sqlite_sequence" VALUES('summed_names',8);
COMMIT;
